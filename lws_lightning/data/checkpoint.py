"""Compares the data of a checkpoint with those of a run."""

from collections.abc import Collection, Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.records import changed_options

__all__ = ["compare_with_checkpoint"]


def compare_with_checkpoint(
    dataset_name: str, saved: Mapping[str, Any], current: Mapping[str, Any], ignored: Collection[str]
) -> None:
    """Warns if batches or scores will differ from those of the checkpoint's run.

    Args:
        dataset_name: For the messages.
        saved: The DataModule's state in the checkpoint.
        current: The state in this run, which is used.
        ignored: Options that may differ, such as those of training batches in an evaluation.

    Raises:
        ValueError: The tasks or the seed differ, so that the run cannot be continued.
    """
    # There is no digest before the data are read, and subclasses compare additional state themselves.
    compared = saved.keys() & current.keys() - set(ignored)
    changed = {name: values for name, values in changed_options(saved, current).items() if name in compared}
    for option in ("tasks", "seed"):
        if option in changed:
            before, now = changed[option]
            raise ValueError(
                f"{dataset_name}: the checkpoint was made with {option} = {before}, this run has {now}. Set "
                f"--data.{option} (for the seed also --seed_everything) to the checkpoint's value, or start a new run "
                "without the checkpoint."
            )
    if changed.pop("images_digest", None) is not None and not changed:  # otherwise the options explain it
        rank_zero_warn(
            f"{dataset_name}: the images differ from those of the checkpoint's run (option root), and so will batches "
            "or scores."
        )
    for option, (before, now) in changed.items():
        rank_zero_warn(
            f"{dataset_name}: {option} was {before!r} in the checkpoint and is {now!r} now; "
            "the new value is used, so batches or scores will differ from those of the checkpoint's run."
        )
