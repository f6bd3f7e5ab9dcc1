"""How far a call is, at the foot of the terminal; it makes way for questions."""

import sys

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from .showing import console, legible, lent


class Meter:
    """A bar for one call. Nothing is shown before something is told, nor where nobody looks."""

    def __init__(self, name: str) -> None:
        words = TextColumn("{task.description}", markup=False)  # A server's: nothing in it is markup.
        self._bar = Progress(words, BarColumn(), TaskProgressColumn(), console=console(), transient=True)
        self._name = name
        self._task = self._bar.add_task(legible(name), total=None)

    def tell(self, progress: float, total: float | None, message: str | None) -> None:
        """Show it, until the terminal is used for something else."""
        if not sys.stderr.isatty():
            return
        if not self._bar.live.is_started:
            lent.append(self._bar.console)
            self._bar.start()
        words = legible(message or self._name)
        self._bar.update(self._task, completed=progress, total=total, description=words, refresh=True)

    def stop(self) -> None:
        """Be gone."""
        if self._bar.live.is_started:
            self._bar.stop()
            lent.remove(self._bar.console)
