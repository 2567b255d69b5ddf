"""Cuts a user's classifier into a chain of layers.

A layer begins at each module that has weights and is not a normalisation or activation; everything up to the next one
(normalisation, activation, pooling, flattening, dropout, reshaping) belongs to it. The last linear module is left out,
because each task gets its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

__all__ = [
    "REMEDY",
    "Chain",
    "CutError",
    "as_block",
    "begins_layer",
    "chain_of",
    "common_weights",
    "cut_sequential",
    "no_linear_at_end",
    "try_images",
]

REMEDY = "Write a function that returns a lws_lightning.networks.BaseNetwork instead: see docs/own_network.md."

_FOLLOWERS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.PReLU)
"""Modules with weights that do not begin a layer (`_NormBase`: batch and instance normalisation)."""


class CutError(ValueError):
    """A model is not a chain of layers that ends with a linear module; the message says why and what to do."""


@dataclass(frozen=True)
class Chain:
    """A classifier as a chain.

    Attributes:
        names: Names of the layers: the model's name of the first module of each.
        blocks: The layers, from the image to features `(N, F)`.
        head: The model's last module, from the features to logits.
    """

    names: list[str]
    blocks: list[nn.Module]
    head: nn.Linear


def begins_layer(module: nn.Module) -> bool:
    """Returns whether a layer begins at a module."""
    return not isinstance(module, _FOLLOWERS) and next(module.parameters(), None) is not None


def cut_sequential(model: nn.Sequential, what: str) -> Chain:
    """Cuts an `nn.Sequential` at its children, or at those of its last child if that is a Sequential, too.

    Args:
        model: The classifier.
        what: How messages refer to it.

    Raises:
        CutError: If it is not such a chain.
    """
    parts = _named_parts(model)
    while parts and type(last := parts[-1][1]) is nn.Sequential:
        name, _ = parts.pop()
        parts += [(f"{name}.{inner}", child) for inner, child in _named_parts(last)]
    if not parts or not isinstance(parts[-1][1], nn.Linear):
        raise no_linear_at_end(what, type(parts[-1][1]).__name__ if parts else "nothing")
    head = parts.pop()[1]
    assert isinstance(head, nn.Linear)
    groups: list[list[nn.Module]] = [[]]
    names: list[str] = []
    for name, child in parts:
        if begins_layer(child):
            if names:
                groups.append([])
            names.append(name)
        groups[-1].append(child)
    return chain_of(names, [as_block(group) for group in groups], head, what)


def _named_parts(model: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Returns what a Sequential runs, including repeated modules, which `named_children` lists only once."""
    return list(zip(model._modules, model, strict=True))


def chain_of(names: Sequence[str], blocks: Sequence[nn.Module], head: nn.Linear, what: str) -> Chain:
    """Makes a chain from layers that do not share weights.

    Raises:
        CutError: If no layer has weights, or if two layers use the same weights, which copies would untie.
    """
    if not names:
        raise CutError(f"{what} has no layer with weights besides its last nn.Linear. {REMEDY}")
    tied = common_weights([*names, "the last nn.Linear"], [*blocks, head])
    if tied is not None:
        raise CutError(
            f"{what} uses the same weights in {tied[0]} and in {tied[1]}, and is not a chain of layers that can be "
            f"replaced individually. {REMEDY}"
        )
    return Chain(list(names), list(blocks), head)


def common_weights(names: Sequence[str], blocks: Sequence[nn.Module]) -> tuple[str, str] | None:
    """Returns the names of two blocks that use the same weights, or None."""
    place_of: dict[nn.Parameter, int] = {}
    for place, block in enumerate(blocks):
        for parameter in block.parameters():
            if (first := place_of.setdefault(parameter, place)) != place:
                return names[first], names[place]
    return None


def as_block(parts: Sequence[nn.Module]) -> nn.Module:
    """Merges consecutive modules into one; subclasses of `nn.Sequential` without their own forward are flattened."""
    if len(parts) > 1:
        return nn.Sequential(*(inner for part in parts for inner in _unpacked(part)))
    modules = _unpacked(parts[0])
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


def _unpacked(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return [part for child in module for part in _unpacked(child)]
    return [module]


def no_linear_at_end(what: str, last: str) -> CutError:
    """Makes the error for a model whose logits do not come from `nn.Linear`."""
    return CutError(
        f"{what} does not end with nn.Linear but with {last}, so it is unclear what each task's head should be. "
        f"Make it end with nn.Linear (with any number of outputs), or: {REMEDY}"
    )


def try_images(model: nn.Module, image_shape: Sequence[int], what: str) -> None:
    """Runs a model once, which also gives lazy modules their shapes.

    Raises:
        ValueError: If it cannot take images of shape `(C, H, W)`.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *image_shape))
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError) as error:
        raise ValueError(
            f"{what} cannot take images of shape {tuple(image_shape)}: {error}. If they are too small, let "
            "model.network_input enlarge them."
        ) from error
    for module, mode in modes:
        module.training = mode
