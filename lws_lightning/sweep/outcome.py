"""What became of a run of a sweep."""

from dataclasses import dataclass
from pathlib import Path

from lws_lightning.records import RECORD_FILE, find_run
from lws_lightning.sweep.plan import SweepRun

__all__ = ["LOG_FILE", "Outcome", "outcome_of"]

LOG_FILE = "log.txt"
"""What the worker of a run printed, in the run's folder."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: The run.
        finished: Whether it did all its steps and was tested.
        text: One line for the user.
        began: Whether it got as far as a training step.
        tried: Whether it was started at all.
    """

    run: SweepRun
    finished: bool
    text: str
    began: bool
    tried: bool = True


def outcome_of(run: SweepRun, started: float = 0.0) -> Outcome:
    """Reads how a run ended, once its worker has.

    Args:
        run: The run.
        started: When the worker was started (`time.time`). A record from before says nothing about its end.
    """
    record, log = find_run(run.folder), run.folder / LOG_FILE
    if record is None:
        return Outcome(run, False, f"{run}: FAILED: {_last_line(log)} (log: {log})", began=False)
    if record.status == "finished":
        error = "" if record.last_error is None else f", error {record.last_error:.2f} %"
        untested = "" if record.complete else f"; its networks could not be tested: {_last_line(log)} (log: {log})"
        return Outcome(run, record.complete, f"{run}: finished at step {record.step:,}{error}{untested}", began=True)
    ends = {
        "interrupted": f"interrupted at step {record.step:,}",
        "failed": f"FAILED at step {record.step:,}: {record.message}",
        "running": f"FAILED: killed after step {record.step:,}",
    }
    fresh = _changed(run.folder / RECORD_FILE) >= started
    what = ends[record.status] if fresh else f"FAILED: {_last_line(log)}"
    return Outcome(run, False, f"{run}: {what} (log: {log})", began=record.step > 0)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
