"""Independent networks, each kept at the step of its lowest validation error."""

from typing import Any

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.fixed import FixedScheme
from lws_lightning.methods.scheme import Design

__all__ = ["IndependentEarlyStopping"]


class IndependentEarlyStopping(MultiTaskMethod):
    """A network for each task that shares nothing, with early stopping of each by itself.

    Tasks that share nothing may stop at different steps. After each validation a task whose error is strictly lower
    than ever before has its weights and running statistics kept as its best. After `patience` evaluations without that,
    its network is frozen: it gets no batch, no gradient and no step of Adam. When all tasks are frozen, the training
    ends.

    Inference, `trainer.test`, `trainer.validate` and `lws test` use the best networks; for a task that has not been
    validated yet, the current weights. The evaluations while training go on to show the current weights, since they
    decide. Of a frozen task they therefore show the same error from then on.

    Every layer is each task's own, those too that the base network calls common; there this differs from
    `FixedSharing(sharing="none")`. Otherwise the training is the same, on the same batches, until the first task stops.
    But the validation images are missing from the training images.

    Memory and checkpoints hold the weights twice.

    Args:
        patience: Evaluations without a lower error after which a task is frozen; at least 1.
        **options: See `MultiTaskMethod`.

    Raises:
        ValueError: If there are no validation images to stop by.
    """

    def __init__(self, patience: int = 5, **options: Any) -> None:
        design = Design(
            "early_stopping", lambda blueprint: FixedScheme(blueprint, "none"), patience=patience, all_learned=True
        )
        super().__init__(design, **options)
