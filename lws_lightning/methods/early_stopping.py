"""Independent networks, each restored to the step of its lowest validation error."""

from typing import Any

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.fixed import FixedScheme
from lws_lightning.methods.scheme import Design

__all__ = ["IndependentEarlyStopping"]


class IndependentEarlyStopping(MultiTaskMethod):
    """An independent network for each task, each stopped early on its own.

    Tasks that share nothing may stop at different steps. After each validation, a task whose error is strictly lower
    than ever before has its weights and running statistics saved as its best. After `patience` evaluations without
    improvement its network is frozen: it gets no batch, no gradient and no Adam step. Training ends when all tasks are
    frozen.

    Inference, `trainer.test`, `trainer.validate` and `lws test` use the best networks, or the current weights for a
    task not validated yet. Evaluations during training use the current weights, since they decide; a frozen task
    therefore shows the same error from then on.

    Every layer is separate for each task, even those that the base network calls common, unlike in
    `FixedSharing(sharing="none")`. Otherwise training is identical, on the same batches, until the first task stops,
    except that validation images are held out of the training images.

    Memory and checkpoints hold the weights twice.

    Args:
        patience: Evaluations without a lower error after which a task is frozen; at least 1.
        **options: See `MultiTaskMethod`.

    Raises:
        ValueError: If there are no validation images.
    """

    def __init__(self, patience: int = 5, **options: Any) -> None:
        design = Design(
            "early_stopping", lambda blueprint: FixedScheme(blueprint, "none"), patience=patience, all_learned=True
        )
        super().__init__(design, **options)
