"""Python code that builds a plain network, for those who get its weights alone."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

__all__ = ["source_of"]

_HEADER = "from collections import OrderedDict\nfrom torch import nn\n\nnetwork = "


def source_of(network: nn.Sequential, images: Tensor) -> str | None:
    """Writes code that builds a network of the same architecture out of `torch.nn` alone.

    Torch's modules print themselves nearly as they are constructed. What is printed is not relied on: the code is run,
    gets the network's weights, and must give the same outputs.

    Args:
        network: In eval mode.
        images: A batch to compare by.

    Returns:
        Code that sets `network`; None if the network has modules that are not torch's or not told by what they print.
    """
    expression = _expression(network)
    if expression is None:
        return None
    try:
        # Of nothing but constructors of torch.nn, written above, never read from a file.
        built = eval(expression, {"__builtins__": {}, "nn": nn, "OrderedDict": OrderedDict, "True": True})
        built.load_state_dict(network.state_dict())
        with torch.no_grad():
            same = torch.equal(built.eval()(images), network(images))
    except Exception:  # whatever an expression that is none leads to
        return None
    return f"{_HEADER}{expression}\n" if same else None


def _expression(module: nn.Module, indent: str = "") -> str | None:
    kind = type(module)
    if isinstance(module, nn.Sequential) and kind is nn.Sequential:
        deeper = indent + "    "
        parts = []
        for name, child in zip(module._modules, module, strict=True):  # one may stand in several places
            of_child = _expression(child, deeper)
            if of_child is None:
                return None
            parts.append(f"{deeper}({name!r}, {of_child}),\n")
        return f"nn.Sequential(OrderedDict([\n{''.join(parts)}{indent}]))" if parts else "nn.Sequential()"
    if getattr(nn, kind.__name__, None) is not kind or any(True for _ in module.children()):
        return None
    return f"nn.{kind.__name__}({module.extra_repr()})"
