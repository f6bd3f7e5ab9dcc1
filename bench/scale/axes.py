"""What the cost of a server is held against: tools in its catalogue, size of arguments, answers recorded, rounds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.fleet import Spec
from bench.scale.talks import Speaker, flows, in_turn, interview, signing
from bench.wire import Phrasebook, Talk

TOOLS = (1, 100, 1000)
KILOBYTES = (1, 2, 4, 8, 16, 32, 64, 128)
RECORDED = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = (1, 2, 4, 8, 16)
VARIANTS, LEGS = 16, 4
"""How many conversations differ from each other; legs are few, because each has to be led up to."""
LONGEST = RECORDED[-1] + 2
"""Questions of the flow whose single rounds are measured: each of them asks one more."""

Talks = Callable[[int, str, int], Iterator[Talk]]
"""The conversations with a port, by library and size."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A quantity, the sizes at which the cost is measured, and what is paid for."""

    name: str
    label: str
    sizes: tuple[int, ...]
    per: str
    talks: Talks

    @property
    def straight(self) -> bool:
        """Whether the cost may grow along it, in a straight line; otherwise it has to stay the same."""
        return self.name != "tools"

    def spec_at(self, spec: Spec, size: int) -> Spec:
        """The server for one size; only a catalogue needs one of its own."""
        return spec if self.straight else replace(spec, arguments=("--tools", str(size)))


def calls(port: int, _: str, __: int) -> Iterator[Talk]:
    return Phrasebook(port).plain_calls()


def signings(port: int, _: str, kilobytes: int) -> Iterator[Talk]:
    return flows([Speaker(port, signing(variant, kilobytes)) for variant in range(VARIANTS)])


def legs(port: int, library: str, recorded: int) -> Iterator[Talk]:
    scripts = [interview(f"{library}_{LONGEST}", variant, LONGEST) for variant in range(LEGS)]
    return in_turn([Speaker(port, script).leg(port, recorded) for script in scripts])


def interviews(port: int, library: str, rounds: int) -> Iterator[Talk]:
    scripts = [interview(f"{library}_{rounds}", variant, rounds) for variant in range(VARIANTS)]
    return flows([Speaker(port, script) for script in scripts])


AXES = (
    Axis("tools", "tools in the catalogue", TOOLS, "call", calls),
    Axis("arguments", "kB of arguments", KILOBYTES, "flow", signings),
    Axis("ledger", "answers recorded", RECORDED, "round", legs),
    Axis("rounds", "questions of a flow, a round for each", ROUNDS, "flow", interviews),
)
