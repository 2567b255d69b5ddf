"""One task's network without anything of this package."""

import copy
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from lws_lightning.sharing.batch_norm import restore_batch_norms
from lws_lightning.sharing.random_layers import restore_random_layers

__all__ = ["standalone_network"]

_TAKEN = frozenset(dir(nn.Sequential()))


def standalone_network(modules: Sequence[nn.Module], names: Sequence[str], task: int) -> nn.Sequential:
    """Copies modules into a chain of their own, as they were before they were made part of a network of several tasks.

    Args:
        modules: What to apply, one after the other.
        names: A name for each. Characters that the name of a submodule cannot have become `_`, and where two names
            would be one, a number is added.
        task: Whose running statistics they get, where these are kept for each task.

    Returns:
        Deep copies in eval mode, with float32 weights on the CPU in torch's default memory layout, none of which shares
        memory with another network. All require gradients, so that they can be trained further.
    """
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    for module, name in zip(modules, names, strict=True):
        cleaned = name.replace(".", "_") or "_"
        key, number = cleaned, 2
        while key in chain or key in _TAKEN:
            key, number = f"{cleaned}_{number}", number + 1
        chain[key] = restore_random_layers(restore_batch_norms(copy.deepcopy(module), task))
    network = nn.Sequential(chain).cpu().float().eval().requires_grad_(True)
    for tensor in (*network.parameters(), *network.buffers()):
        # A channels_last layout is written down by some formats, and slow where nobody asked for it.
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    return network
