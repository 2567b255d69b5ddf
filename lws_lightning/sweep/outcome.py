"""What became of a run of a sweep."""

from dataclasses import dataclass
from pathlib import Path

from lws_lightning.sweep.plan import SweepRun
from lws_lightning.sweep.state import read_state

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
    """Reads how a run ended whose worker has ended.

    Args:
        run: The run.
        started: When the worker was started (`time.time`). A record from before says nothing about its end.
    """
    state, log = read_state(run.folder), run.folder / LOG_FILE
    if state.status == "finished":
        error = "" if state.error is None else f", error {state.error:.2f} %"
        untested = "" if state.tested else f"; its networks could not be tested: {_last_line(log)} (log: {log})"
        return Outcome(run, state.tested, f"{run}: finished at step {state.step:,}{error}{untested}", True)
    fresh = _changed(run.folder / "result.json") >= started
    if fresh and state.status == "interrupted":
        what = f"interrupted at step {state.step:,}"
    elif fresh and state.status == "failed":
        what = f"FAILED at step {state.step:,}: {state.message}"
    elif fresh and state.status == "running":
        what = f"FAILED: killed after step {state.step:,}"
    else:
        what = f"FAILED: {_last_line(log)}"
    return Outcome(run, False, f"{run}: {what} (log: {log})", state.step > 0)


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
