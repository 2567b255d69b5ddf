"""How far a run of a sweep is, as its folder says."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["RunState", "checkpoint_step", "newest_checkpoint", "read_state"]


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


def checkpoint_step(path: Path) -> int:
    """Reads after how many training steps a checkpoint was saved; its tensors are not read."""
    return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["global_step"])


def newest_checkpoint(folder: Path) -> Path | None:
    """Finds the checkpoint that a run goes on from.

    Args:
        folder: Of the run.

    Returns:
        The newest file below `checkpoints` that can be read, None if there is none. Files that a kill left damaged are
        passed over.
    """
    steps: dict[Path, tuple[int, int]] = {}
    for path in (folder / "checkpoints").glob("*.ckpt"):
        try:
            steps[path] = checkpoint_step(path), path.stat().st_mtime_ns
        except Exception:  # whatever torch raises about a damaged file
            continue
    return max(steps, key=lambda path: steps[path], default=None)
