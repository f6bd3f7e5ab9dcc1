"""What who has a token may do in the inbox.

A token is good for everything unless it says less. With that of a *caller* calls are handed over, under its own name,
looked at, waited for and withdrawn, those and no others; it answers nothing, and opens no page. With that of a *reader*
everything is seen, and nothing changed.
"""

from typing import Literal, NamedTuple, get_args

Role = Literal["everything", "caller", "reader"]
NARROW: tuple[Role, ...] = ("caller", "reader")
"""What may stand behind a token."""


class Member(NamedTuple):
    """Whose a token is, and what for."""

    name: str
    role: Role = "everything"

    @property
    def may_answer(self) -> bool:
        """Whether they may answer questions."""
        return self.role == "everything"

    @property
    def may_hand_over(self) -> bool:
        """Whether they may bring calls, and change those that they may see."""
        return self.role != "reader"

    @property
    def may_browse(self) -> bool:
        """Whether the pages are for them."""
        return self.role != "caller"

    def may_see(self, caller: str) -> bool:
        """Whether calls of this caller are to be seen by them."""
        return self.role != "caller" or caller == self.name


def checked(member: Member) -> Member:
    """The same; ValueError where it has no proper name, or a role that there is not."""
    if not member.name.isprintable() or not 0 < len(member.name) <= 100:
        raise ValueError(f"not a name: {member.name!r}")
    if member.role not in get_args(Role):
        raise ValueError(f"a role is one of {', '.join(get_args(Role))}, not {member.role!r}")
    return member
