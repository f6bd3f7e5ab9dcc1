"""What was said in a call, round by round."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Round(NamedTuple):
    """One request and its reply, as they went over the wire."""

    request: dict[str, Any]
    reply: dict[str, Any]

    @property
    def questions(self) -> dict[str, dict[str, Any]]:
        """What the reply asks, by key."""
        return dict(self.reply.get("result", {}).get("inputRequests") or {})

    @property
    def asked(self) -> list[str]:
        """The keys of what it asks."""
        return [*self.questions]

    @property
    def messages(self) -> list[str]:
        """What it asks, in its own words; a model and folders are asked for by method."""
        asked = self.questions.values()
        return [str(question.get("params", {}).get("message", question["method"])) for question in asked]

    @property
    def answered(self) -> list[str]:
        """The keys of the answers that the request brought."""
        return [*(self.request.get("params", {}).get("inputResponses") or {})]

    @property
    def state_size(self) -> int:
        """How many bytes of state the client has to carry until the next round."""
        return len(self.reply.get("result", {}).get("requestState") or "")


class Flow(tuple[Round, ...]):
    """The rounds of one call."""

    __slots__ = ()

    @property
    def asked(self) -> list[list[str]]:
        """The keys that were asked, for each round that asks."""
        return [one.asked for one in self if one.asked]

    @property
    def messages(self) -> list[list[str]]:
        """What was asked in words, for each round that asks."""
        return [one.messages for one in self if one.asked]

    @property
    def state_sizes(self) -> list[int]:
        """How many bytes of state there were after each round."""
        return [one.state_size for one in self]

    def check(
        self,
        *,
        rounds: int | None = None,
        asked: Sequence[Sequence[str]] | None = None,
        largest_state: int | None = None,
    ) -> None:
        """AssertionError, with all rounds, where the call took other rounds, asked something else, or had to have more
        carried. `asked` is as `flow.asked`; the order of keys in one round does not matter.
        """
        __tracebackhide__ = True
        wrong = []
        if rounds is not None and len(self) != rounds:
            wrong.append(f"{len(self)} rounds, not {rounds}")
        keys = [sorted(one) for one in self.asked]
        if asked is not None and keys != [sorted(one) for one in asked]:
            wrong.append(f"asked {keys}, not {[sorted(one) for one in asked]}")
        if largest_state is not None and max(self.state_sizes, default=0) > largest_state:
            wrong.append(f"a state of {max(self.state_sizes)} bytes, and at most {largest_state} are expected")
        if wrong:
            raise AssertionError(f"{'; '.join(wrong)}\n{self.told()}")

    def told(self) -> str:
        """The rounds, a line for each."""
        return "\n".join(f"round {number}: {_told(one)}" for number, one in enumerate(self, 1))


def _told(one: Round) -> str:
    brought = f"answers {', '.join(one.answered)}; " if one.answered else ""
    if "error" in one.reply:
        error = one.reply["error"]
        return f"{brought}error {error.get('code')}: {error.get('message')}"
    if not one.asked:
        return f"{brought}{one.reply.get('result', {}).get('resultType', 'complete')}"
    asked = ", ".join(f"{key} ({words})" for key, words in zip(one.asked, one.messages, strict=True))
    return f"{brought}asks {asked}; {one.state_size} bytes of state"
