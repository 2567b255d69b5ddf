"""What ended a run before its last step."""

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer

from lws_lightning.methods import LinearProbe, MultiTaskMethod

__all__ = ["stopped_by"]


def stopped_by(trainer: Trainer, method: MultiTaskMethod) -> str | None:
    """Names what made a run stop before its last step, None if nothing did.

    Args:
        trainer: After its training.
        method: The trained method.

    Returns:
        `trainer.max_time`, the class of a callback such as `EarlyStopping` with its monitored metric, `its method`, or
        `a callback` if it cannot be identified.
    """
    if not trainer.should_stop:
        return None
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, Timer) and (left := callback.time_remaining()) is not None and left <= 0:
            return "trainer.max_time"
        if isinstance(callback, EarlyStopping) and (callback.stopped_epoch or callback.wait_count >= callback.patience):
            return f"{type(callback).__name__} on {callback.monitor}"
    if isinstance(method, LinearProbe):
        return "its method"
    tasks = method.details().get("early_stopping", {}).values()
    return "its method" if tasks and all(task["stopped"] for task in tasks) else "a callback"
