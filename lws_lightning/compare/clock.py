"""The time that a comparison has spent, over all calls."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from lws_lightning.compare.saying import say
from lws_lightning.records import write_atomically
from lws_lightning.sweep import Display, SweepRun

__all__ = ["Clock", "ClockedDisplay"]

_FILE = "spent.json"
_EVERY = 5.0  # seconds


class Clock:
    """Counts the seconds of this call and of those before it, up to a few seconds before a kill.

    Args:
        folder: Of the comparison.
        budget: In seconds.
    """

    def __init__(self, folder: Path, budget: float) -> None:
        self._file, self._budget = folder / _FILE, budget
        self._before = 0.0
        if self._file.is_file():
            self._before = float(json.loads(self._file.read_text())["seconds"])
        self._started = self._saved = time.monotonic()

    def spent(self) -> float:
        """Returns the seconds spent so far."""
        return self._before + time.monotonic() - self._started

    def remaining(self) -> float:
        """Returns the seconds that are left of the budget."""
        return self._budget - self.spent()

    def save(self) -> None:
        """Keeps the time for another call."""
        self._saved = time.monotonic()
        write_atomically(self._file, json.dumps({"seconds": round(self.spent(), 1)}))

    def save_now_and_then(self) -> None:
        """Saves every few seconds."""
        if time.monotonic() - self._saved > _EVERY:
            self.save()

    def say(self, text: str) -> None:
        """Prints a line with the time in front."""
        minutes, seconds = divmod(int(self.spent()), 60)
        say(f"[{minutes:02}:{seconds:02}] {text}", indent=8)


class ClockedDisplay(Display):
    """A sweep's display that keeps the time spent, so that a kill does not lose it.

    Args:
        runs: The runs of a round.
        clock: The clock.
    """

    def __init__(self, runs: Sequence[SweepRun], clock: Clock) -> None:
        self._clock = clock
        super().__init__(runs)

    def refresh(self, active: Sequence[SweepRun]) -> None:
        """Redraws the bars."""
        self._clock.save_now_and_then()
        super().refresh(active)

    def say(self, text: str) -> None:
        """Prints a line without the folder, which is named like the run."""
        super().say(f"        {text.partition(', in ')[0].removeprefix('contenders/')}")
