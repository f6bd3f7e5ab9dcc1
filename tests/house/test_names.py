"""What is public: the names in `turnwise.__all__`, and nothing that costs before it is used."""

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

import turnwise
from turnwise import auth, errors


def test_the_public_names_are_all_there_and_each_once() -> None:
    assert len(set(turnwise.__all__)) == len(turnwise.__all__)
    for name in turnwise.__all__:
        assert getattr(turnwise, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(turnwise, "Manager")


def test_every_public_name_says_what_it_is() -> None:
    for name in turnwise.__all__:
        value = getattr(turnwise, name)
        assert not isinstance(value, type) or value.__doc__, name


def test_importing_the_library_loads_neither_the_official_types_nor_a_web_server() -> None:
    code = "import sys, turnwise; print([m for m in ('mcp_types', 'uvicorn', 'starlette', 'jwt') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def words_of(protocol: type[Any]) -> set[str]:
    """The names of this library that the methods of a protocol are annotated with."""
    parts = [part for base in protocol.__mro__ if getattr(base, "_is_protocol", False) for part in vars(base).values()]
    texts = [
        str(annotation)
        for part in parts
        if inspect.isfunction(part)
        for annotation in inspect.get_annotations(part).values()
    ]
    return set(re.findall(r"turnwise[\w.]*\.([A-Z]\w+)", " ".join(texts)))


PROTOCOLS = [name for name in turnwise.__all__ if getattr(getattr(turnwise, name), "_is_protocol", False)]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_is_there_to_be_implemented_uses_public_words(name: str) -> None:
    assert words_of(getattr(turnwise, name)) <= set(turnwise.__all__)


def test_those_who_extend_the_library_find_what_they_implement() -> None:
    assert {"Channel", "FlowStore", "Lasting", "PendingStore", "TokenVerifier"} <= set(PROTOCOLS)
    assert {"Dispatcher", "Observer", "StepObserver", "TaskStore", "Telling"} <= set(PROTOCOLS)
    assert {"Claim", "Limits", "LostLease", "NewTask", "Outcome"} <= set(turnwise.__all__)


def drawn() -> dict[str, str]:
    """Each exception of the drawn tree, and the one that it hangs from."""
    above: list[tuple[int, str]] = []
    tree: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line)) is None:
            continue
        depth, name = len(found[1]), found[2]
        above = [(other, parent) for other, parent in above if other < depth]
        tree[name] = above[-1][1] if above else "Exception"
        above.append((depth, name))
    return tree


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    classes: dict[str, type[Any]] = {name: getattr(errors, name) for name in errors.__all__}
    assert drawn() == {name: found.__bases__[0].__name__ for name, found in classes.items()}


def test_who_catches_a_verifier_that_cannot_know_still_does() -> None:
    assert vars(auth)["VerifierUnavailable"] is turnwise.VerifierUnavailable
    assert issubclass(turnwise.VerifierUnavailable, turnwise.TurnwiseError)
    assert turnwise.VerifierUnavailable("away").retry_after == auth.RETRY_AFTER
