"""Shows the progress of a sweep."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from lws_lightning.records import RECORD_FILE, Run, find_run
from lws_lightning.sweep.plan import SweepRun

__all__ = ["Display"]

_REST = 7 + 7 + 6 + 4  # columns of a bar's line beside its two texts: two times, a short bar, and the spaces between


class Display:
    """A progress bar for all runs and one for each active run; without a terminal, lines of text only.

    Args:
        runs: All runs of the sweep, including finished ones.
        console: None: standard output.
        live: Whether to draw bars; None: if the console is a terminal.
    """

    def __init__(self, runs: Sequence[SweepRun], console: Console | None = None, live: bool | None = None) -> None:
        self.console = console or Console(highlight=False)
        # Not `is_terminal`, which Rich sets in notebooks, too.
        live = self.console.file.isatty() if live is None else live
        self._runs = list(runs)
        self._records = {run.folder: find_run(run.folder) for run in runs}
        self._times: dict[Path, int] = {}
        self._bars: dict[Path, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[text]}", markup=False),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=self.console,
            refresh_per_second=2,
            disable=not live,
        )
        total = sum(run.max_steps or 0 for run in runs) or None
        self._all = self._progress.add_task("all runs", total=total, text="")
        self.refresh(())

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self.console.print(text, markup=False, soft_wrap=True)

    def refresh(self, active: Sequence[SweepRun]) -> None:
        """Redraws the bars; `active` are the runs in progress."""
        for run in active:
            record = self._record(run)
            step, error = (record.step, record.last_error) if record else (0, None)
            text = f"step {step:,}" + (f" of {run.max_steps:,}" if run.max_steps else "")
            text += "" if error is None else f", error {error:.2f} %"
            name = _end_of(str(run), self.console.width - len(text) - _REST)
            if run.folder not in self._bars:
                self._bars[run.folder] = self._progress.add_task(name, total=run.max_steps, text=text)
            self._progress.update(self._bars[run.folder], description=name, completed=step, text=text)
        for folder in set(self._bars) - {run.folder for run in active}:
            self._progress.remove_task(self._bars.pop(folder))
        records = [record for record in self._records.values() if record is not None]
        finished = sum(record.status == "finished" for record in records)
        self._progress.update(
            self._all,
            completed=sum(record.step for run in self._runs if run.max_steps and (record := self._records[run.folder])),
            text=f"{finished} of {len(self._runs)} runs finished",
        )

    def _record(self, run: SweepRun) -> Run | None:
        """Returns a run's record, and reads it again if the file has changed."""
        try:
            modified = os.stat(run.folder / RECORD_FILE).st_mtime_ns  # noqa: PTH116 - several times a second
        except OSError:
            modified = 0
        if self._times.get(run.folder) != modified:
            self._times[run.folder] = modified
            self._records[run.folder] = find_run(run.folder)
        return self._records[run.folder]


def _end_of(name: str, room: int) -> str:
    """Shortens a name at its beginning: method and seed stand at its end, and without this Rich cuts the times."""
    room = max(room, len("seed 10"))
    return name if len(name) <= room else f"…{name[1 - room :]}"
