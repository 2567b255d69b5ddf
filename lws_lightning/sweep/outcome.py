"""How a run of a sweep ended."""

from dataclasses import dataclass
from pathlib import Path

from lws_lightning.records import RECORD_FILE, find_run
from lws_lightning.sweep.plan import SweepRun

__all__ = ["LOG_FILE", "Outcome", "outcome_of"]

LOG_FILE = "log.txt"
"""The output of a run's worker, in the run's folder."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: The run.
        finished: Whether it completed its training and was tested.
        text: One line for the user.
        trained: Whether it completed a training step.
        started: Whether it was started at all.
    """

    run: SweepRun
    finished: bool
    text: str
    trained: bool
    started: bool = True


def outcome_of(run: SweepRun, started: float = 0.0) -> Outcome:
    """Returns how a run ended, after its worker has exited.

    Args:
        run: The run.
        started: When the worker was started (`time.time`); an older record does not describe its end.
    """
    record, log = find_run(run.folder), run.folder / LOG_FILE
    if record is None:
        return Outcome(run, False, f"{run}: FAILED: {_last_line(log)} (log: {log})", trained=False)
    if record.status == "finished":
        error = "" if record.last_error is None else f", error {record.last_error:.2f} %"
        untested = "" if record.complete else f"; its networks could not be tested: {_last_line(log)} (log: {log})"
        return Outcome(run, record.complete, f"{run}: finished at step {record.step:,}{error}{untested}", trained=True)
    ends = {
        "interrupted": f"interrupted at step {record.step:,}",
        "failed": f"FAILED at step {record.step:,}: {record.message}",
        "running": f"FAILED: killed after step {record.step:,}",
    }
    written = (run.folder / RECORD_FILE).stat().st_mtime
    end = ends[record.status] if written >= started else f"FAILED: {_last_line(log)}"
    return Outcome(run, False, f"{run}: {end} (log: {log})", trained=record.step > 0)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
