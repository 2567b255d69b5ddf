"""Early stopping of individual tasks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.sharing import MultiTaskNetwork, TaskNetworks

__all__ = ["EarlyStopping"]


class EarlyStopping(nn.Module):
    """Keeps each task's network at the step of its lowest validation error, and stops tasks that no longer improve.

    When a task's error is strictly lower than ever before, its weights and running statistics are copied to `best`.
    After `patience` evaluations without improvement the task is stopped: it gets no batch, and weights that only
    stopped tasks use get no gradient and no Adam step. Weights that it shares with other tasks continue to change; its
    network in `best` does not.

    Args:
        best: Networks with separate weights for each task (see `MultiTaskNetwork.unshared`).
        patience: Evaluations without a lower error after which a task is stopped; at least 1.

    Attributes:
        best: The same networks, with the best weights of each evaluated task.
        best_wrong: `(T,)` int64, wrong predictions at the best evaluation, -1 before the first.
        best_step: `(T,)` int64, the step of that evaluation, -1 before the first.
        waited: `(T,)` int64, evaluations since then.
        judged_step: Int64, the step of the last evaluation taken into account, so that an evaluation repeated after an
            interruption is not counted twice.
    """

    best_wrong: Tensor
    best_step: Tensor
    waited: Tensor
    judged_step: Tensor

    def __init__(self, best: MultiTaskNetwork, patience: int) -> None:
        super().__init__()
        if patience < 1:
            raise ValueError(f"patience must be at least 1 evaluation, but is {patience}.")
        self.patience = patience
        self.num_tasks = len(best.heads)
        self.best = best.requires_grad_(False)
        for name, first in (("best_wrong", -1), ("best_step", -1), ("waited", 0)):
            self.register_buffer(name, torch.full((self.num_tasks,), first))
        self.register_buffer("judged_step", torch.tensor(-1))

    @property
    def best_assignment(self) -> Tensor:
        """The assignment of `best`, `(L, T)`: copy t for task t."""
        return torch.arange(self.num_tasks).repeat(len(self.best.layers), 1)

    def tasks_in_training(self) -> list[int]:
        """Returns the tasks that have not been stopped, ascending."""
        return [task for task, waited in enumerate(self.waited.tolist()) if waited < self.patience]

    def has_best(self, task: int) -> bool:
        """Whether a task has been evaluated, so that `best` holds its network."""
        return int(self.best_step[task]) >= 0

    def drop_gradients(self, network: TaskNetworks, assignment: Tensor) -> None:
        """Removes the gradients of weights that only stopped tasks use, so that Adam does not change them."""
        training = self.tasks_in_training()
        used = {id(weights) for task in training for weights in network.task_parameters(assignment, task)}
        for task in set(range(self.num_tasks)) - set(training):
            for weights in network.task_parameters(assignment, task):
                if id(weights) not in used:
                    weights.grad = None

    def judge(
        self,
        network: TaskNetworks,
        assignment: Tensor,
        counts: Tensor,
        step: int,
        task_names: Sequence[str],
    ) -> list[str]:
        """Takes an evaluation into account.

        Args:
            network: The networks that were evaluated.
            assignment: `(L, T)`, the assignment they were evaluated under.
            counts: `(T, 2)` int64, the numbers of evaluated images and wrong predictions of each task.
            step: The step of the evaluation.
            task_names: Names of the T tasks.

        Returns:
            Messages about the tasks that stop now.

        Raises:
            ValueError: If a task in training has no images.
        """
        missing = [task_names[task] for task in self.tasks_in_training() if int(counts[task, 0]) == 0]
        if missing:
            raise ValueError(f"Early stopping needs validation images of every task, but {missing} have none.")
        if int(self.judged_step) == step:
            return []
        self.judged_step.fill_(step)
        stopped = []
        for task in self.tasks_in_training():
            best, wrong = int(self.best_wrong[task]), int(counts[task, 1])
            if 0 <= best <= wrong:
                self.waited[task] += 1
                if int(self.waited[task]) == self.patience:
                    stopped.append(f"{task_names[task]} stops; its best step was {int(self.best_step[task])}.")
                continue
            saved, current = self.best.task_modules(self.best_assignment, task), network.task_modules(assignment, task)
            for target, source in zip(saved, current, strict=True):
                target.load_state_dict(source.state_dict())
            self.best_wrong[task], self.best_step[task], self.waited[task] = wrong, step, 0
        return stopped

    def details(self, task_names: Sequence[str]) -> dict[str, Any]:
        """Returns, by task, `best_step`, its `wrong` predictions (both None before an evaluation), and `stopped`."""
        training = set(self.tasks_in_training())
        steps, wrong = self.best_step.tolist(), self.best_wrong.tolist()
        return {
            "early_stopping": {
                name: {
                    "best_step": None if steps[task] < 0 else steps[task],
                    "wrong": None if steps[task] < 0 else wrong[task],
                    "stopped": task not in training,
                }
                for task, name in enumerate(task_names)
            }
        }
