"""Splits a task's images into training, validation and unused images."""

from typing import Literal

import torch
from torch import Tensor

from lws_lightning.data.tasks import Examples, TaskData
from lws_lightning.randomness import generator_for

__all__ = ["Validation", "hold_out", "split_training_images", "stratified_subset", "training_subset"]

Validation = Literal["none", "split", "unused"]
"""The option `validation` of `MultiTaskDataModule`."""


def stratified_subset(labels: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Chooses `size` examples, stratified by class.

    A class with n of N examples has the quota `size * n / N`. Each class gets its quota rounded down, the remaining
    examples go to the largest remainders, ties in a random order. If `size` suffices, a class with none then gets one
    from the class furthest above its quota.

    Args:
        labels: `(N,)` int64.
        size: Number of examples to choose, from 0 to N.
        generator: The only source of randomness.

    Returns:
        `(chosen, rest)`: `(size,)` and `(N - size,)` int64 indices into `labels`, disjoint, each ascending.

    Raises:
        ValueError: `size` is negative or larger than N.
    """
    total = len(labels)
    if not 0 <= size <= total:
        raise ValueError(f"cannot choose {size} of {total} examples.")
    classes, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    # Integers, because ties would depend on rounding in floating point.
    quotas = [size * count for count in counts.tolist()]  # in units of 1 / total
    shares = [quota // total for quota in quotas] if total else []
    order = torch.randperm(len(classes), generator=generator).tolist()
    by_remainder = sorted(order, key=lambda c: -(quotas[c] % total))
    for c in by_remainder[: size - sum(shares)]:
        shares[c] += 1
    if size >= len(classes):
        for c in (c for c in order if shares[c] == 0):
            donor = max((d for d in order if shares[d] > 1), key=lambda d: shares[d] * total - quotas[d])
            shares[donor] -= 1
            shares[c] = 1
    chosen = torch.zeros(total, dtype=torch.bool)
    for c, share in enumerate(shares):
        members = (inverse == c).nonzero().squeeze(1)
        chosen[members[torch.randperm(len(members), generator=generator)[:share]]] = True
    return chosen.nonzero().squeeze(1), (~chosen).nonzero().squeeze(1)


def hold_out(labels: Tensor, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns the `stratified_subset` of a fraction of the examples, at least one, and the rest."""
    return stratified_subset(labels, max(1, round(fraction * len(labels))), generator)


def training_subset(
    dataset: str, task: str, examples: Examples, size: int | None, split_seed: int
) -> tuple[Examples, Examples]:
    """Draws the training images of a task, stratified by class.

    Args:
        dataset: Name of the data set, for messages.
        task: Name of the task.
        examples: All training images.
        size: The option `train_images_per_task`. None: all.
        split_seed: As in `MultiTaskDataModule`.

    Returns:
        The chosen images and the rest.

    Raises:
        ValueError: There are fewer images than `size`.
    """
    total = len(examples.labels)
    size = total if size is None else size
    if total < size:
        raise ValueError(
            f"{dataset}, task {task!r}: train_images_per_task is {size}, but there are only {total} training images."
        )
    chosen, rest = stratified_subset(examples.labels, size, generator_for(split_seed, "training subset", task))
    return examples.select(chosen), examples.select(rest)


def split_training_images(
    task: TaskData, dataset: str, validation: Validation, fraction: float, largest: int | None, seed: int
) -> tuple[Examples, Examples]:
    """Returns the training and the validation images of a task; the latter are empty without validation.

    Args:
        task: The task.
        dataset: Name of the data set, for messages.
        validation: As in `MultiTaskDataModule`, like the following.
        fraction: `validation_fraction`.
        largest: `validation_images`.
        seed: `split_seed`.

    Raises:
        ValueError: The task cannot provide the validation images.
    """
    where = f"{dataset}, task {task.name!r}"
    generator = generator_for(seed, "validation", task.name)
    if validation == "none":
        return task.train, task.train.select(slice(0))
    if validation == "split":
        labels = task.train.labels
        held_out, kept = hold_out(labels, fraction, generator)
        empty = sorted(set(labels.tolist()) - set(labels[kept].tolist()))
        if empty:
            raise ValueError(
                f"{where}: validation: split with validation_fraction {fraction} leaves no "
                f"training image in class {', '.join(map(str, empty))}; use a smaller fraction."
            )
        return task.train.select(kept), task.train.select(held_out)
    if task.unused is None or len(task.unused.labels) == 0:
        raise ValueError(
            f"{where}: validation: unused needs training images that are not used, and there are none; "
            "use validation: split, or fewer training images."
        )
    available = len(task.unused.labels)
    chosen, _ = stratified_subset(task.unused.labels, min(available, largest or available), generator)
    return task.train, task.unused.select(chosen)
