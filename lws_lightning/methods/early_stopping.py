"""Independent networks, each kept at the step of its lowest validation error."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from lws_lightning.batches import StepBatch, TaskBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.networks import BaseNetwork
from lws_lightning.sharing import MultiTaskNetwork, PopulationPass, TaskNetworks

__all__ = ["IndependentEarlyStopping"]


class IndependentEarlyStopping(MultiTaskMethod):
    """A network for each task that shares nothing, with early stopping of each by itself.

    Tasks that share nothing may stop at different steps. After each validation a task whose error is strictly lower
    than ever before has its weights and running statistics copied to `best`. After `patience` evaluations without that,
    its network is frozen: it gets no batch, no gradient and no step of Adam. When all tasks are frozen, the training
    ends.

    Inference, `trainer.test`, `trainer.validate` and `lws test` use `best`; for a task that has not been validated yet,
    the current weights. The evaluations while training go on to show the current weights, since they decide. Of a
    frozen task they therefore show the same error from then on.

    Every layer is each task's own, those too that the base network calls common; there this differs from
    `FixedSharing(sharing="none")`. Otherwise the training is the same, on the same batches, until the first task stops.
    But the validation images are missing from the training images.

    Memory and checkpoints hold the weights twice.

    Args:
        patience: Evaluations without a lower error after which a task is frozen; at least 1.
        **options: See `MultiTaskMethod`.

    Attributes:
        best: The networks with the best weights of each task.
        best_wrong: `(T,)` int64, wrong predictions at the best evaluation, -1 before the first.
        best_step: `(T,)` int64, the step of that evaluation, -1 before the first.
        waited: `(T,)` int64, evaluations since then.
        judged_step: Int64, the step of the last evaluation that was taken into account; the same one made again after a
            stop is not.

    Raises:
        ValueError: If there are no validation images to stop by.
    """

    method_name = "early_stopping"
    network: MultiTaskNetwork
    best_wrong: Tensor
    best_step: Tensor
    waited: Tensor
    judged_step: Tensor

    def __init__(self, patience: int = 5, **options: Any) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1 evaluation, but is {patience}.")
        if options.get("validation_prefix") == "test_curve":
            raise ValueError(
                "Early stopping needs validation images, but with data.validation: none the validation loop sees test "
                "images, and nothing may be selected by them. Set data.validation: split (or unused)."
            )
        super().__init__(**options)
        self.patience = patience
        tasks = len(self.task_names)
        self.best = copy.deepcopy(self.evaluated_network).requires_grad_(False)
        for name, first in (("best_wrong", -1), ("best_step", -1), ("waited", 0)):
            self.register_buffer(name, torch.full((tasks,), first))
        self.register_buffer("judged_step", torch.tensor(-1))
        self._assignment = torch.arange(tasks).repeat(len(self.layer_names), 1)

    def choose_base(self, base: BaseNetwork) -> BaseNetwork:
        """Makes every layer a learned one, so that each task has its own."""
        layers = [dataclasses.replace(layer, learned=True) for layer in base.layers]
        return dataclasses.replace(base, layers=layers)

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns T for each layer."""
        return [len(self.num_classes)] * len(base.learned_layers)

    @property
    def assignment(self) -> Tensor:
        """Copy t for task t at every layer, `(L, T)`."""
        return self._assignment

    def tasks_in_training(self) -> Sequence[int]:
        """Returns the tasks that have not been frozen, ascending."""
        return [task for task, waited in enumerate(self.waited.tolist()) if waited < self.patience]

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Takes one Adam step for the tasks that have not been frozen."""
        tasks = list(self.tasks_in_training())
        if not tasks:  # the Trainer was told to go on (min_steps); a step of nothing counts
            self.optimizers().zero_grad()  # type: ignore[union-attr]
            self.apply_gradients()
            return
        part = TaskBatch(batch.sgd.images[tasks], batch.sgd.labels[tasks]) if len(tasks) < self._size else batch.sgd
        losses = self.compute_gradients(part, self.assignment[:, tasks].unsqueeze(0))
        self.apply_gradients()
        self.log_now({"train/loss": losses.mean()}, prog_bar=True)

    @property
    def _size(self) -> int:
        return len(self.task_names)

    def run_networks(self, images: Tensor, population: Tensor | None, **part: PopulationPass) -> list[Tensor]:
        """Returns the logits of the tasks in training."""
        tasks = self.tasks_in_training()
        return self.network(images, population, tasks=tasks, **part)  # type: ignore[no-any-return]

    def objective(self, losses: Tensor, tasks: range) -> Tensor:
        """Scales losses so that their mean over tasks in training is the sum over T, whoever has stopped."""
        return losses * (len(self.tasks_in_training()) / self._size)

    def rescale_gradients(self) -> None:
        """Takes the gradients of frozen tasks away, so that Adam leaves their weights as they are."""
        for task in set(range(self._size)) - set(self.tasks_in_training()):
            for parameter in self.network.task_parameters(self.assignment, task):
                parameter.grad = None

    def networks_for_inference(self, task: int) -> TaskNetworks:
        """Returns `best`; for the evaluations while training, and for a task before its first, what they measure."""
        fitting = self._trainer is not None and self.trainer.state.fn == "fit" and self.trainer.validating
        return self.evaluated_network if fitting or int(self.best_step[task]) < 0 else self.best

    def on_train_start(self) -> None:
        """Ends a run that was resumed when all tasks had stopped."""
        super().on_train_start()
        self._stop_if_done()

    def on_validation_epoch_end(self) -> None:
        """Logs the errors, then keeps what is best and counts."""
        super().on_validation_epoch_end()
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            self._keep_best()
            self._stop_if_done()

    def _keep_best(self) -> None:
        tasks, evaluated = self.tasks_in_training(), self.evaluated_network
        assert isinstance(evaluated, MultiTaskNetwork)
        counts = self.errors.compute()[:, :2].round().to(torch.int64).tolist()  # images, wrong
        missing = [self.task_names[task] for task in tasks if counts[task][0] == 0]
        if missing:
            raise ValueError(f"Early stopping needs validation images of every task; there are none of {missing}.")
        if int(self.judged_step) == self.global_step:
            return
        self.judged_step.fill_(self.global_step)
        for task in tasks:
            wrong, best = counts[task][1], int(self.best_wrong[task])
            if 0 <= best <= wrong:
                self.waited[task] += 1
                if int(self.waited[task]) == self.patience:
                    rank_zero_info(f"{self.task_names[task]} stops; its best step was {int(self.best_step[task])}.")
                continue
            pairs = zip(
                self.best.task_modules(self.assignment, task),
                evaluated.task_modules(self.assignment, task),
                strict=True,
            )
            for kept, module in pairs:
                kept.load_state_dict(module.state_dict())
            self.best_wrong[task], self.best_step[task], self.waited[task] = wrong, self.global_step, 0

    def _stop_if_done(self) -> None:
        if not self.tasks_in_training():
            self.trainer.should_stop = True

    def details(self) -> dict[str, Any]:
        """Returns by task the best step, the wrong predictions there (None before an evaluation), and `stopped`."""
        training = set(self.tasks_in_training())
        steps, wrong = self.best_step.tolist(), self.best_wrong.tolist()
        return {
            "early_stopping": {
                name: {
                    "best_step": None if steps[task] < 0 else steps[task],
                    "wrong": None if steps[task] < 0 else wrong[task],
                    "stopped": task not in training,
                }
                for task, name in enumerate(self.task_names)
            }
        }
