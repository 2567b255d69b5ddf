"""How a resumed run treats options that differ from its checkpoint's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.networks import LIBRARY_PREFIXES
from lws_lightning.records import changed_options
from lws_lightning.training import apply_schedule

if TYPE_CHECKING:
    from lws_lightning.methods.base import MultiTaskMethod

__all__ = ["apply_adam_options", "compare_options", "refuse_import_path", "resume_schedule"]

_REMEDIES = {"task_names": "It comes from the data: see data.tasks.", "seed": "See seed_everything."}


def compare_options(method: "MultiTaskMethod", saved: Mapping[str, Any]) -> None:
    """Warns about options of a resumed run that differ from its checkpoint's, or refuses them.

    Args:
        method: The method to train; its class declares the effect of a change of each option.
        saved: The `identity` in the checkpoint.

    Raises:
        ValueError: If an option differs that the saved state depends on.
    """
    changed = changed_options(saved, method.identity)
    # Of the values from the data, task names are the most informative.
    for name in sorted(changed, key=lambda name: (name != "task_names", name)):
        old, new = changed[name]
        if name in method.start_options:
            rank_zero_warn(f"model.{name} has no effect here, because a resumed run starts from its checkpoint.")
        elif name in method.state_options or (name in method.state_values and method.state_values[name] in (old, new)):
            raise ValueError(
                f"model.{name} is {new!r}, but the checkpoint was trained with {old!r} and cannot resume with another. "
                + _REMEDIES.get(name, "Leave the option out, or start without --ckpt_path.")
            )
        else:
            rank_zero_warn(f"Resuming with model.{name} {new!r} instead of the checkpoint's {old!r}.")


def apply_adam_options(checkpoint: dict[str, Any], groups: Sequence[Mapping[str, Any]], eps: float) -> None:
    """Replaces learning rates, weight decays and eps in a checkpoint's optimizer state with this run's.

    Args:
        checkpoint: Changed in place.
        groups: Adam's parameter groups, each with `lr` and `weight_decay`.
        eps: Adam's epsilon.
    """
    for state in checkpoint.get("optimizer_states", []):
        for group, current in zip(state["param_groups"], groups, strict=True):
            group["lr"] *= current["lr"] / group.get("initial_lr", group["lr"])
            group["initial_lr"] = current["lr"]
            group["weight_decay"] = current["weight_decay"]
            group["eps"] = eps
    for state in checkpoint.get("lr_schedulers", []):
        state["base_lrs"] = [group["lr"] for group in groups]


def refuse_import_path(checkpoint: Mapping[str, Any]) -> None:
    """Raises ValueError if a checkpoint's network is an import path."""
    network = checkpoint.get("hyper_parameters", {}).get("network")
    if isinstance(network, str) and ":" in network and not network.startswith(LIBRARY_PREFIXES):
        raise ValueError(
            f"The checkpoint's network is code to import, {network!r}. If you trust it, pass --trust_network (in "
            "Python, trust_network=True), or replace it with your own network (network=...)."
        )


def resume_schedule(method: "MultiTaskMethod", saved: int | None, steps: int) -> None:
    """Applies a run's schedule of the learning rate, with a warning if the checkpoint's ends at another step.

    Args:
        method: The method, attached to a Trainer.
        saved: The steps of the checkpoint's schedule; None for a run that is not resumed.
        steps: Those of this run's.
    """
    schedule: Any = method.lr_schedulers()
    apply_schedule(schedule)
    if saved is not None and saved != steps and not method.progress.finished:
        rank_zero_warn(
            f"Resuming with lr_schedule {method.lr_schedule} over {steps:,} steps instead of the checkpoint's "
            f"{saved:,}: step {method.global_step:,} continues with a learning rate of "
            f"{schedule.optimizer.param_groups[0]['lr']:.3g}."
        )
