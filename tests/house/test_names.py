"""What is public: the names in `turnwise.__all__`, and nothing that costs before it is used."""

import subprocess
import sys

import turnwise


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
