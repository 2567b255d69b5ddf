"""Refuses modules that the callbacks cannot watch."""

from lightning.pytorch import Callback, LightningModule

from lws_lightning.methods import MultiTaskMethod

__all__ = ["require_method"]


def require_method(module: LightningModule, callback: Callback) -> MultiTaskMethod:
    """Returns the module that a Trainer runs.

    Raises:
        TypeError: If it is no method of this package, nor derived from one.
    """
    if not isinstance(module, MultiTaskMethod):
        raise TypeError(
            f"{type(callback).__name__} works with the methods of lws_lightning and classes derived from "
            f"MultiTaskMethod; {type(module).__name__} is not one."
        )
    return module
