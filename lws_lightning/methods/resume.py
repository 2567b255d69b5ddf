"""What happens to options that differ from those in the checkpoint a run resumes from."""

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.networks import TORCHVISION_PREFIX

__all__ = ["apply_adam_options", "compare_options", "refuse_import_path"]

_PART_OF_THE_STATE = frozenset(
    {
        "network",
        "task_names",
        "num_classes",
        "image_shape",
        "weights_per_layer",
        "sharing",
        "prior_layers",
        "learned_layers",
        "per_channel",
        "subspaces",
        "seed",
    }
)
_REMEDIES = {"task_names": "It comes from the data: see data.tasks.", "seed": "See seed_everything."}
_OF_THE_START = frozenset(
    {
        "initialization",
        "pretrained_weights",
        "perturb_copies",
        "initial_probs",
        "initial_log_variance",
        "same_task",
        "same_subspace",
        "last_layer",
    }
)


def compare_options(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Says aloud which options of a resumed run differ from its checkpoint's, and whether they are obeyed.

    Raises:
        ValueError: If one differs that the saved state depends on.
    """
    ignored = {name for name in saved if name.startswith("_")} | {"validation_prefix"}  # the data say that of theirs
    # Of what comes from the data the names of the tasks say most.
    for name in sorted(saved.keys() & current.keys() - ignored, key=lambda name: (name != "task_names", name)):
        old, new = _plain(saved[name]), _plain(current[name])
        if old == new:
            continue
        if name in _OF_THE_START:
            rank_zero_warn(f"model.{name} has no effect here, because a run that resumes begins with its checkpoint.")
            continue
        added_or_dropped = {"running_stats": "per_task", "ema_decay": None}
        if name in _PART_OF_THE_STATE or (name in added_or_dropped and added_or_dropped[name] in (old, new)):
            raise ValueError(
                f"model.{name} is {new!r}, but the checkpoint was trained with {old!r} and cannot go on with another. "
                + _REMEDIES.get(name, "Leave the option out, or start without --ckpt_path.")
            )
        rank_zero_warn(f"Resuming with model.{name} {new!r} instead of the checkpoint's {old!r}.")


def apply_adam_options(checkpoint: dict[str, Any], groups: Sequence[Mapping[str, Any]], eps: float) -> None:
    """Puts this run's learning rates, weight decays and eps in place of those in a checkpoint's optimizer state.

    Args:
        checkpoint: Changed in place.
        groups: Adam's parameter groups, each with `lr` and `weight_decay`.
        eps: Adam's.
    """
    for state in checkpoint.get("optimizer_states", []):
        for group, own in zip(state["param_groups"], groups, strict=True):
            group["lr"] *= own["lr"] / group.get("initial_lr", group["lr"])
            group["initial_lr"] = own["lr"]
            group["weight_decay"] = own["weight_decay"]
            group["eps"] = eps
    for state in checkpoint.get("lr_schedulers", []):
        state["base_lrs"] = [own["lr"] for own in groups]


def refuse_import_path(checkpoint: Mapping[str, Any]) -> None:
    """Raises ValueError if a checkpoint names code to import as its network."""
    network = checkpoint.get("hyper_parameters", {}).get("network")
    if isinstance(network, str) and ":" in network and not network.startswith(TORCHVISION_PREFIX):
        raise ValueError(
            f"The checkpoint's network is code to import, {network!r}. If you trust it, give --trust_network (from "
            "Python trust_network=True), or a network of your own in its place (network=...)."
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
