from pathlib import Path

from turnwise import Done, Pending, SyncClient


def begin(url: str, flight: str, file: Path) -> None:
    """Call until somebody has to be asked, and put the call down."""
    with SyncClient(url) as client:
        outcome = client.begin("book", {"flight": flight})
    if isinstance(outcome, Pending):
        file.touch(0o600)
        file.write_text(outcome.to_json())


def finish(url: str, file: Path, row: int) -> str:
    """Pick the call up, in any process and at any time, and give the answer."""
    pending = Pending.from_json(file.read_text())
    (key,) = pending.unanswered
    with SyncClient(url) as client:
        outcome = client.resume(pending, {key: {"row": row}})
    if not isinstance(outcome, Done):
        file.write_text(outcome.to_json())
        return "There is more to ask."
    file.unlink()
    return str(outcome.result.structured_content)
