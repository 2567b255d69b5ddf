"""Converts a classifier that is a torch module to a base network."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.chain import Chain, cut_sequential, try_images
from lws_lightning.networks.graph import cut_graph
from lws_lightning.networks.initialization import torch_default_
from lws_lightning.networks.verification import seeded, verify_chain
from lws_lightning.sharing import Copies

__all__ = ["base_network_from_model", "choose_frozen_layers", "choose_learned_layers"]


def base_network_from_model(
    make_model: Callable[[], nn.Module], image_shape: Sequence[int], what: str, pretrained: bool = False
) -> BaseNetwork:
    """Converts a classifier to a base network.

    The classifier is cut into a chain of layers, all of them learned; its last `nn.Linear` is replaced with a head for
    each task. Prior sharing shares the first half of the layers. The chain is verified to compute the same as the
    classifier on random images.

    Args:
        make_model: Makes the classifier. Unless it is `pretrained`, called again for each copy of its layers, with
            torch's generator seeded anew, so that each copy starts from its own weights, as the classifier itself draws
            them.
        image_shape: `(C, H, W)`.
        what: How messages refer to the classifier.
        pretrained: Whether all copies start from the classifier's weights.

    Raises:
        ValueError: If the classifier cannot take such images.
        CutError: If it is not a chain of layers.
    """

    def cut_anew(generator: torch.Generator) -> list[nn.Module]:
        with seeded(generator.initial_seed()):
            model = make_model()
            if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
                try_images(model, image_shape, what)
            return _cut(model, what).blocks

    with seeded(0):
        model = make_model()
        try_images(model, image_shape, what)
    chain = _cut(model, what)
    verify_chain(model, lambda twin: _cut(twin, what), image_shape, what)
    features, bias = chain.head.in_features, chain.head.bias is not None
    return BaseNetwork(
        layers=[BaseLayer(name, block) for name, block in zip(chain.names, chain.blocks, strict=True)],
        make_head=partial(nn.Linear, features, bias=bias),
        prior_layers=len(chain.blocks) // 2,
        initialise=torch_default_,
        redraw=None if pretrained else cut_anew,
        pretrained=pretrained,
    )


def choose_learned_layers(base: BaseNetwork, patterns: Sequence[str] | None) -> BaseNetwork:
    """Chooses the learned layers by name; the others become common to all tasks.

    Args:
        base: The base network.
        patterns: Names of layers, with `*`, `?` and `[...]` as in file names. None: leave the base network unchanged.

    Returns:
        A base network whose learned layers are those that match a pattern.

    Raises:
        ValueError: If a pattern matches no layer, or only layers without weights.
    """
    if patterns is None:
        return base
    chosen = _matching(base, patterns, "learned_layers")
    names = [layer.name for layer in base.layers]
    layers = [replace(layer, learned=layer.name in chosen) for layer in base.layers]
    empty = [layer.name for layer in layers if layer.learned and not any(True for _ in layer.block.parameters())]
    if empty or not chosen:
        raise ValueError(
            "learned_layers: at least one layer must be chosen, and only layers with weights; "
            f"of {names}, {empty} have none."
        )
    return _with_layers(base, layers)


def choose_frozen_layers(
    base: BaseNetwork, patterns: Sequence[str] | None, learned_patterns: Sequence[str] | None, copies: Copies
) -> BaseNetwork:
    """Chooses by name the layers whose weights are not trained.

    A frozen layer is common to all tasks, unless its copies are parts that are trained beside the frozen block. Then
    the learned layers are frozen, too.

    Args:
        base: The base network, with its learned layers chosen.
        patterns: Names of layers, with `*`, `?` and `[...]` as in file names. None: none.
        learned_patterns: The option `learned_layers`.
        copies: What the copies of learned layers are.

    Raises:
        ValueError: If a pattern matches no layer, a learned layer has copies of its weights, or no layer is learned.
    """
    chosen = set() if patterns is None else _matching(base, patterns, "frozen_layers")
    if learned_patterns is not None:
        both = [layer.name for layer in base.learned_layers if layer.name in chosen]
        if both and copies == "weights":
            raise ValueError(
                f"frozen_layers: {both} are also in learned_layers, but copies of weights must be trained. Leave them "
                "out of either, or set model.copies to adapter, lora or norm: these are trained beside frozen weights."
            )
        chosen -= set(both)
    layers = [replace(layer, learned=False, frozen=True) if layer.name in chosen else layer for layer in base.layers]
    if copies != "weights":
        layers = [replace(layer, frozen=layer.frozen or layer.learned) for layer in layers]
    if not any(layer.learned for layer in layers):
        raise ValueError(
            f"frozen_layers {patterns}: all learned layers are frozen, so there is nothing to share or to train except "
            "the heads. Leave some out, name them in learned_layers together with model.copies (adapter, lora or "
            "norm), or use LinearProbe, which fits the heads alone."
        )
    return _with_layers(base, layers)


def _matching(base: BaseNetwork, patterns: Sequence[str], option: str) -> set[str]:
    names = [layer.name for layer in base.layers]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"{option}: {pattern!r} matches none of the network's layers, which are {names}.")
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}


def _with_layers(base: BaseNetwork, layers: Sequence[BaseLayer]) -> BaseNetwork:
    """Replaces the layers; prior sharing shares those of its layers that are still learned."""
    shared = {layer.name for layer in base.learned_layers[: base.prior_layers]}
    prior = sum(layer.learned and layer.name in shared for layer in layers)
    return replace(base, layers=layers, prior_layers=prior)


def _cut(model: nn.Module, what: str) -> Chain:
    """Switches off in-place operations, because copies of a layer share their input, and cuts the model."""
    for module in model.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
    return cut_sequential(model, what) if type(model) is nn.Sequential else cut_graph(model, what)
