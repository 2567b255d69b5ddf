"""The cost of a prediction: parameters, multiply-adds and time."""

import statistics
import time
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lws_lightning.sharing import TaskNetworks

if TYPE_CHECKING:
    from lws_lightning.methods.base import MultiTaskMethod

__all__ = ["count_multiply_adds", "inference_costs", "inference_parameters", "inference_seconds", "median_seconds"]


def inference_parameters(method: "MultiTaskMethod", task: int) -> int:
    """Counts the distinct parameters that a prediction of one task uses."""
    networks, assignment = method.inference_network(task)
    return sum(parameter.numel() for parameter in networks.task_parameters(assignment, task))


def inference_costs(method: "MultiTaskMethod") -> dict[str, dict[str, int]]:
    """Returns the `parameters` and `multiply_adds` of a prediction of one image, for each task.

    Which copies a task uses changes during training, but not their cost.
    """
    multiply_adds = count_multiply_adds(method.network, method.assignment, method.image_shape)
    return {
        name: {"parameters": inference_parameters(method, task), "multiply_adds": multiply_adds[task]}
        for task, name in enumerate(method.task_names)
    }


def inference_seconds(method: "MultiTaskMethod", batch_size: int) -> float:
    """Times the prediction of a batch by the first task's network, in eval mode, on its current device."""
    images = torch.zeros(batch_size, *method.image_shape, dtype=torch.uint8, device=method.device)
    networks, _ = method.inference_network(0)
    with networks.evaluating():
        return median_seconds(lambda batch: method(batch, 0), images)


class _OneTask(nn.Module):
    """One task's network as a module, so that its weights can be replaced for a call."""

    def __init__(self, network: TaskNetworks, assignment: Tensor, task: int) -> None:
        super().__init__()
        self.network = network
        self._choice = assignment, task

    def forward(self, images: Tensor) -> Tensor:
        return self.network.forward_task(images, *self._choice)


def count_multiply_adds(network: TaskNetworks, assignment: Tensor, image_shape: tuple[int, ...]) -> list[int]:
    """Counts the multiply-adds of a prediction of one image in eval mode, for each of T tasks.

    Counts convolutions and matrix products: half of the FLOPs that torch counts. One task's network is counted as a
    whole and only the heads of the others, because the copies of a layer cost the same. The network runs on the meta
    device, or on real tensors if a user's block does not support that.

    Args:
        network: The networks of all tasks.
        assignment: `(L, T)` int64.
        image_shape: `(C, H, W)`.
    """
    with torch.no_grad(), network.evaluating():
        try:
            return _count_all(network, assignment, image_shape, "meta")
        except (RuntimeError, NotImplementedError):
            return _count_all(network, assignment, image_shape, None)


def median_seconds(predict: Callable[[Tensor], Tensor], images: Tensor, repeats: int = 7) -> float:
    """Returns the median time of a prediction in seconds, including GPU synchronisation.

    Args:
        predict: Called with the images.
        images: A batch, on the device of the network.
        repeats: Number of timed calls, after one warm-up call.
    """
    seconds = []
    with torch.no_grad():
        for _ in range(repeats + 1):
            started = time.perf_counter()
            predict(images)
            if images.is_cuda:
                torch.cuda.synchronize(images.device)
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _count_all(
    network: TaskNetworks, assignment: Tensor, image_shape: tuple[int, ...], device: str | None
) -> list[int]:
    features: list[Tensor] = []
    hook = network.heads[0].register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    try:
        images = torch.zeros(1, *image_shape)
        whole = _count(_OneTask(network, assignment, 0), images, device)
    finally:
        hook.remove()
    heads = [_count(head, features[0], device) for head in network.heads]
    return [whole - heads[0] + head for head in heads]


def _count(module: nn.Module, inputs: Tensor, device: str | None) -> int:
    """Counts the multiply-adds of a call, with weights and inputs moved to `device` unless it is None."""
    # Each module once with all its tensors, tied ones too: functional_call would miss a module used in two places.
    weights = {
        f"{path}.{name}": tensor
        for path, submodule in module.named_modules()
        for name, tensor in chain(
            submodule.named_parameters(recurse=False, remove_duplicate=False),
            submodule.named_buffers(recurse=False, remove_duplicate=False),
        )
    }
    weights = {name.removeprefix("."): tensor for name, tensor in weights.items()}
    reference = next(iter(weights.values()), inputs)
    inputs = inputs.to(device or reference.device, reference.dtype)
    if device is not None:
        weights = {name: tensor.to(device) for name, tensor in weights.items()}
    with FlopCounterMode(display=False) as counter:
        torch.func.functional_call(module, weights, (inputs,), tie_weights=False)
    return int(counter.get_total_flops()) // 2
