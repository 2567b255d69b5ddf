"""What a checkpoint says of its run's data, against what this run has."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["compare_with_checkpoint"]

_OF_BATCHES = frozenset({"seed", "batch_size", "distribute", "processes"})


def compare_with_checkpoint(dataset_name: str, saved: Mapping[str, Any], own: Mapping[str, Any], fitting: bool) -> None:
    """Warns where batches or scores will not be those of the checkpoint's run.

    Args:
        dataset_name: For the messages.
        saved: The DataModule's state in the checkpoint.
        own: That of this run, which is obeyed.
        fitting: Whether the run trains; evaluation draws no batches.

    Raises:
        ValueError: The tasks differ, or in training the seed, so that the run could not go on as it began.
    """
    changed = {key: old for key, old in saved.items() if key in own and own[key] != old}
    if not fitting:
        changed = {key: old for key, old in changed.items() if key not in _OF_BATCHES}
    for option in ("tasks", "seed"):
        if option in changed:
            raise ValueError(
                f"{dataset_name}: the checkpoint was made with {option} = {changed[option]}, this run has "
                f"{own[option]}. Set --data.{option} (for the seed also --seed_everything) to the "
                "checkpoint's value, or start a new run without the checkpoint."
            )
    other_images = changed.pop("images_digest", None) is not None
    if other_images and not changed:  # else the options say why
        rank_zero_warn(
            f"{dataset_name}: the images are not those of the checkpoint's run (option root), so batches or scores "
            "differ from those of that run."
        )
    for option, old in changed.items():
        rank_zero_warn(
            f"{dataset_name}: {option} was {old!r} in the checkpoint and is {own[option]!r} now; "
            "the new value is used, so batches or scores differ from those of the checkpoint's run."
        )
