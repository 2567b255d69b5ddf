"""timm's classifiers by name, for images with any number of channels."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from lws_lightning.networks.pretrained import load_pretrained

__all__ = ["TIMM_PREFIX", "make_timm_model", "timm_input"]

TIMM_PREFIX = "timm:"
"""Prefix of the names of these networks."""


def make_timm_model(name: str, image_shape: Sequence[int], pretrained_weights: str | None = None) -> nn.Module:
    """Makes a classifier of timm.

    With pretrained weights and C channels other than three, each of the C channels of the first convolution gets the
    sum of the three channels' weights divided by C, as for torchvision's networks.

    Args:
        name: timm's name of the model, for example `resnet18` or, with a tag of its weights, `resnet18.a1_in1k`.
        image_shape: `(C, H, W)`. Models for images of one size are built for this size.
        pretrained_weights: `DEFAULT` for those that timm publishes for this name, or a file (see `load_pretrained`).

    Raises:
        ValueError: If timm is not installed or has no such model, it cannot be built for such images, or the weights
            do not fit or cannot be downloaded.
    """
    timm = _timm()
    channels, height, width = image_shape
    what = f"The network {TIMM_PREFIX}{name} for {height}x{width} pixels"
    configuration = _configuration(name)
    options: dict[str, Any] = {"img_size": (height, width)} if configuration.fixed_input_size else {}

    def make(channels: int, pretrained: bool = False) -> nn.Module:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, in_chans=channels, **options)
        return model

    try:
        model = make(channels if pretrained_weights is None else 3)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        raise ValueError(
            f"The network {TIMM_PREFIX}{name} cannot be made for {height}x{width} pixels: {error}"
        ) from error
    if pretrained_weights == "DEFAULT":
        try:
            model = make(3, pretrained=True)
        except Exception as error:  # from the network, the disk, a missing package or a damaged file
            raise ValueError(
                f"pretrained_weights: DEFAULT of {TIMM_PREFIX}{name} cannot be downloaded: {error}. Without a network, "
                "give a file with a state dict (.pt, .safetensors)."
            ) from error
    elif pretrained_weights is not None:
        load_pretrained(model, pretrained_weights, None, what)
    if pretrained_weights is not None and channels != 3:
        state, key = model.state_dict(), f"{configuration.first_conv}.weight"
        if key not in state:
            raise ValueError(f"{what} has no single first convolution, so its weights fit only images of 3 channels.")
        shape = (-1, channels, -1, -1)
        state[key] = state[key].sum(1, keepdim=True).expand(*shape) / channels
        model = make(channels)
        model.load_state_dict(state)
    _separate_activations(model)
    return model


def timm_input(name: str) -> dict[str, Any]:
    """Returns `size`, `mean` and `std` of the images that timm's weights for a model were trained with."""
    configuration = _configuration(name)
    return {
        "size": int(configuration.input_size[-1]),
        "mean": list(configuration.mean),
        "std": list(configuration.std),
    }


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ValueError(
            f"Networks {TIMM_PREFIX}... need the package timm: pip install 'lws-lightning[timm]'."
        ) from error
    return timm


def _configuration(name: str) -> Any:
    timm = _timm()
    if not timm.is_model(name):
        similar = timm.list_models(f"*{name.split('.')[0][:8]}*")[:8]
        raise ValueError(f"timm has no classifier named {name!r}. Similar names: {', '.join(similar) or 'none'}.")
    configuration = timm.get_pretrained_cfg(name)
    if configuration is None:
        raise ValueError(f"timm has no configuration of weights for {name!r}; leave out the tag after the dot.")
    return configuration


def _separate_activations(model: nn.Module) -> None:
    """Replaces timm's joint modules of batch normalisation, dropout and activation by sequences of torch's.

    Batch normalisation is then recognised as such. The order of weights stays, but their names change.
    """
    for path, part in list(model.named_modules()):
        if isinstance(part, nn.BatchNorm2d) and type(part) is not nn.BatchNorm2d and hasattr(part, "act"):
            norm = nn.BatchNorm2d(part.num_features, part.eps, part.momentum, part.affine, part.track_running_stats)
            norm._parameters, norm._buffers = part._parameters, part._buffers
            followers: list[Any] = [getattr(part, "drop", nn.Identity()), part.act]
            kept = [module for module in followers if not isinstance(module, nn.Identity)]
            model.set_submodule(path, nn.Sequential(norm, *kept))
