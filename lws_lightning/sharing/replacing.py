"""Replaces modules within a module, each once wherever it stands."""

from collections.abc import Callable

from torch import nn

__all__ = ["replace_modules"]


def replace_modules(module: nn.Module, replace: Callable[[nn.Module, str], nn.Module]) -> nn.Module:
    """Replaces a module, or modules within it.

    A module that stands in several places is replaced by one and the same; `Module.named_children` would tell the first
    place only.

    Args:
        module: Changed in place, unless it is itself replaced.
        replace: Called with a module and its first place, such as `0.conv`. What it returns unchanged is searched for
            others.

    Returns:
        What stands in the module's place.
    """
    done: dict[nn.Module, nn.Module] = {}

    def visit(part: nn.Module, path: str) -> nn.Module:
        if part not in done:
            done[part] = replace(part, path)
            if done[part] is part:
                for name, child in list(part._modules.items()):
                    if child is not None:
                        setattr(part, name, visit(child, f"{path}.{name}" if path else name))
        return done[part]

    return visit(module, "")
