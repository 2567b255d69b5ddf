"""Verifies by trial that a chain of layers equals its model and draws random numbers only in known modules."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lws_lightning.networks.chain import REMEDY, Chain, CutError
from lws_lightning.sharing import TaskAttention, TaskRandom, convert_random_layers

__all__ = ["refuse_hidden_randomness", "seeded", "verify_chain"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's CPU generator, and restores its state afterwards."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def verify_chain(model: nn.Module, cut: Callable[[nn.Module], Chain], image_shape: Sequence[int], what: str) -> None:
    """Compares features and logits of a model with those of its chain on random images.

    It does so in eval mode and, with the same random numbers, in training mode. Constant weights (biases of 0, scales
    of 1 or of 1e-6) are first replaced by random ones, so that a missing module is detected.

    Args:
        model: The model; unchanged.
        cut: Cuts a copy of it in the same way.
        image_shape: `(C, H, W)`.
        what: How messages refer to the model.

    Raises:
        CutError: If the results differ, are not finite, depend on other images of the batch (in eval mode), or if a
            layer changes its input.
    """
    twin = copy.deepcopy(model)
    with seeded(0), torch.no_grad():
        for parameter in twin.parameters():
            if parameter.numel() > 0 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.uniform_(0.1, 1)
        images = torch.rand(2, *image_shape)
        chain = cut(twin)
        for training in (False, True):
            twin.train(training)
            for block in chain.blocks:
                block.train(training)
            expected = _features_and_logits(twin, chain.head, images)
            with seeded(1):
                before = torch.default_generator.get_state()
                features = _run(chain.blocks, images, what)
                draws = not torch.equal(torch.default_generator.get_state(), before)
                actual = (features, chain.head(features))
            _compare(actual, expected, what)
            if not training:
                alone = _run(chain.blocks, images[:1], what)
                _refuse_difference(
                    alone, features[:1], f"{what} computes something else for a single image than for a batch"
                )
    if draws:
        refuse_hidden_randomness(chain.blocks, images, what)


def refuse_hidden_randomness(blocks: Sequence[nn.Module], images: Tensor, what: str) -> None:
    """Runs layers in training mode and checks whether torch's global generator was used.

    Args:
        blocks: A chain of layers; changed.
        images: `(N, C, H, W)`.
        what: How messages refer to the network.

    Raises:
        CutError: If a layer draws random numbers outside the modules that `convert_random_layers` replaces.
    """
    with seeded(2), torch.no_grad():
        for block in blocks:
            converted = convert_random_layers(block).train()
            for part in converted.modules():
                if isinstance(part, TaskRandom | TaskAttention):
                    part.eval()
            before = torch.default_generator.get_state()
            images = converted(images)
            if not torch.equal(torch.default_generator.get_state(), before):
                raise CutError(
                    f"{what} draws random numbers in {type(block).__name__} that would depend on what else is computed "
                    "(F.dropout, for example), so that runs could not be resumed or repeated. Use the modules "
                    "nn.Dropout, torchvision.ops.StochasticDepth or nn.MultiheadAttention(dropout=...) instead."
                )


def _features_and_logits(model: nn.Module, head: nn.Linear, images: Tensor) -> tuple[Tensor, Tensor]:
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        with seeded(1):
            logits = model(images.clone())
    finally:
        handle.remove()
    return seen[-1], logits


def _run(blocks: Sequence[nn.Module], images: Tensor, what: str) -> Tensor:
    for block in blocks:
        before = images.clone()
        outputs = block(images)
        if not torch.equal(images, before):
            raise CutError(
                f"{what} has a layer that changes its input in place ({type(block).__name__}), but the copies of a "
                "layer read the same input. Use out-of-place operations."
            )
        images = outputs
    if images.dim() != 2:
        raise CutError(f"{what}'s last nn.Linear must get features (N, F), but gets {tuple(images.shape)}. {REMEDY}")
    return images


def _compare(actual: Sequence[Tensor], expected: Sequence[Tensor], what: str) -> None:
    for actual_tensor, expected_tensor in zip(actual, expected, strict=True):
        if not bool(torch.isfinite(expected_tensor).all()):
            raise CutError(f"{what} computes non-finite values on random images, so it cannot be verified.")
        _refuse_difference(
            actual_tensor,
            expected_tensor,
            f"The chain of layers cut from {what} computes something else than the model",
        )


def _refuse_difference(actual: Tensor, expected: Tensor, message: str) -> None:
    if (
        actual.shape != expected.shape
        or float((actual - expected).abs().max()) > 1e-4 * float(expected.abs().max()) + 1e-6
    ):
        raise CutError(f"{message}. {REMEDY}")
