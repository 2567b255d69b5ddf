"""The pretrained network that the linear probe and the adapters stand on, if this machine has it already."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["TRUNK_NAME", "Trunk", "find_trunk"]

TRUNK_NAME = "tf_efficientnet_lite0"
_SIDE = 112  # of images, as in configs/options/trunk.yaml


@dataclass(frozen=True)
class Trunk:
    """A pretrained network.

    Attributes:
        network: Its name, as the option `network`.
        weights: As the option `pretrained_weights`.
        network_input: As the option of the same name.
        adapted_layers: The layers beside which small parts are trained.
        side: Pixels of the images that it gets.
    """

    network: str
    weights: str
    network_input: dict[str, Any]
    adapted_layers: list[str]
    side: int


def find_trunk() -> tuple[Trunk | None, str]:
    """Returns the trunk, or None and why there is none. Downloads nothing."""
    remedy = "docs/pretrained.md says how to get it"
    if find_spec("timm") is None:
        return None, f"package timm is not installed; {remedy}"
    if not _weights_are_here():
        return None, f"the weights of {TRUNK_NAME} are not on this machine; {remedy}"
    return Trunk(f"timm:{TRUNK_NAME}", "DEFAULT", {"size": _SIDE}, ["blocks.6.0", "conv_head"], _SIDE), ""


def _weights_are_here() -> bool:
    import timm
    from huggingface_hub import try_to_load_from_cache

    repository = timm.get_pretrained_cfg(TRUNK_NAME).hf_hub_id
    names = ("model.safetensors", "pytorch_model.bin")
    return repository is not None and any(isinstance(try_to_load_from_cache(repository, name), str) for name in names)
