"""The frozen layers of a method's networks, for the DataModule to run once for each image."""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lws_lightning.batches import EvaluationBatch, FrozenPrefix
from lws_lightning.sharing import MultiTaskNetwork
from lws_lightning.training import to_inputs

if TYPE_CHECKING:
    from lws_lightning.methods.base import MultiTaskMethod

__all__ = ["frozen_prefix_of"]


def frozen_prefix_of(method: "MultiTaskMethod", datamodule: Any, cache: str) -> FrozenPrefix | None:
    """Returns the layers before the first trained one; None if there are none, or with `feature_cache: off`.

    Args:
        method: The method, on the device of its Trainer.
        datamodule: Its hook `on_after_batch_transfer` prepares images, as for an evaluation.
        cache: The option `feature_cache`.
    """
    network = method.network
    layers = network.frozen_prefix if isinstance(network, MultiTaskNetwork) else 0
    if cache == "off" or not layers:
        return None
    assert isinstance(network, MultiTaskNetwork)

    def compute(images: Tensor) -> Tensor:
        batch = EvaluationBatch(0, images.to(method.device), torch.zeros(len(images), dtype=torch.int64))
        batch = datamodule.on_after_batch_transfer(batch, 0)
        with torch.no_grad():
            features = network.prefix_features(to_inputs(batch.images, network.dtype), layers)
        return features.contiguous().cpu()

    digest = blake2b(digest_size=16)
    for layer in list(network.layers)[:layers]:
        digest.update(repr(layer).encode())
        for name, tensor in layer.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    preprocessing = method.data_record.preprocessing
    return FrozenPrefix(layers, compute, f"{digest.hexdigest()} {preprocessing} {method.device.type}", cache)
