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
        finished: Whether it did all its steps.
        text: One line for the user.
        began: Whether it got as far as a training step.
    """

    run: SweepRun
    finished: bool
    text: str
    began: bool


def outcome_of(run: SweepRun) -> Outcome:
    """Reads how a run ended whose worker has ended."""
    state = read_state(run.folder)
    if state.status == "finished":
        error = "" if state.error is None else f", error {state.error:.2f} %"
        untested = "" if state.tested else f"; its networks were not tested, see {run.folder / LOG_FILE}"
        return Outcome(run, True, f"{run}: finished at step {state.step:,}{error}{untested}", True)
    # A worker that was killed leaves the status `running`, one that failed early leaves no record.
    reason = state.message or _last_line(run.folder / LOG_FILE)
    where = f"{'interrupted' if state.status == 'interrupted' else 'FAILED'} at step {state.step:,}"
    return Outcome(run, False, f"{run}: {where}: {reason} (log: {run.folder / LOG_FILE})", state.step > 0)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
