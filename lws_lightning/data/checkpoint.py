"""Compares the data of a checkpoint's run with those of this one."""

from collections.abc import Collection, Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.records import changed_options

__all__ = ["compare_with_checkpoint"]


def compare_with_checkpoint(
    dataset_name: str, saved: Mapping[str, Any], own: Mapping[str, Any], passed_over: Collection[str]
) -> None:
    """Warns where batches or scores will not be those of the checkpoint's run.

    Args:
        dataset_name: For the messages.
        saved: The DataModule's state in the checkpoint.
        own: That of this run, which is obeyed.
        passed_over: What may differ without a word, such as options of batches in an evaluation, which draws none.

    Raises:
        ValueError: The tasks or the seed differ, so that the run could not go on as it began.
    """
    # There is no digest before the data are read, and a subclass compares by itself what else it saves.
    compared = saved.keys() & own.keys() - set(passed_over)
    changed = {name: values for name, values in changed_options(saved, own).items() if name in compared}
    for option in ("tasks", "seed"):
        if option in changed:
            before, now = changed[option]
            raise ValueError(
                f"{dataset_name}: the checkpoint was made with {option} = {before}, this run has {now}. Set "
                f"--data.{option} (for the seed also --seed_everything) to the checkpoint's value, or start a new run "
                "without the checkpoint."
            )
    if changed.pop("images_digest", None) is not None and not changed:  # else the options say why
        rank_zero_warn(
            f"{dataset_name}: the images are not those of the checkpoint's run (option root), so batches or scores "
            "differ from those of that run."
        )
    for option, (before, now) in changed.items():
        rank_zero_warn(
            f"{dataset_name}: {option} was {before!r} in the checkpoint and is {now!r} now; "
            "the new value is used, so batches or scores differ from those of the checkpoint's run."
        )
