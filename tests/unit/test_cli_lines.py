"""Lines that a person types, where nothing edits them and where the call was given up before."""

import asyncio
from collections.abc import Iterator

import pytest

from turnwise.cli import lines


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is going to be typed."""
    waiting: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *_: waiting.pop(0))
    monkeypatch.setattr(lines, "_editor", lambda: None)
    yield waiting
    assert not waiting


async def read() -> str:
    return lines.read_line("> ")


def test_keys_are_no_text(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    typed += ["hal\x1b[Dlo", "hallo\tthere"]
    assert asyncio.run(read()) == "hallo\tthere"
    assert "there are keys in this line that are no text" in capsys.readouterr().err


def test_a_line_that_the_terminal_has_cut_is_told_of(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    typed.append("x" * 4095)
    assert len(asyncio.run(read())) == 4095
    assert "what was beyond is lost" in capsys.readouterr().err


def test_who_has_given_up_before_the_prompt_is_not_asked(typed: list[str]) -> None:
    async def work() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await read()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert typed == []
