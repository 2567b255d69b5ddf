"""How far a run of a sweep is, as its folder says."""

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunState", "read_state"]


@dataclass(frozen=True)
class RunState:
    """What the record in a run's folder says.

    Attributes:
        status: `new` without a record, or `running` (or killed), `finished`, `interrupted`, `failed`.
        step: Training steps done.
        tested: Whether the final networks have been tested.
        error: Percent over all images, of the last evaluation; None before the first.
        message: The exception that ended it.
    """

    status: str = "new"
    step: int = 0
    tested: bool = False
    error: float | None = None
    message: str = ""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.status == "finished" and self.tested


def read_state(folder: Path) -> RunState:
    """Reads the state of a run; a folder without a record, or with a damaged one, is `new`."""
    try:
        record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        evaluation = record["test"] or record["evaluation"]
        return RunState(
            status=str(record["status"]),
            step=int(record["step"]),
            tested=record["test"] is not None,
            error=None if evaluation is None else float(evaluation["error"]),
            message=str(record["message"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return RunState()
