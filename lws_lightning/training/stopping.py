"""Early stopping of each task by itself."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.sharing import MultiTaskNetwork, TaskNetworks

__all__ = ["EarlyStopping"]


class EarlyStopping(nn.Module):
    """Keeps each task's network at the step of its lowest validation error, and stops tasks that no longer improve.

    A task whose error is strictly lower than ever before has its weights and running statistics copied to `best`. After
    `patience` evaluations without that it is stopped: it gets no batch, and weights that only stopped tasks use get no
    gradient and no step of Adam. Weights that it shares with others move on; its network in `best` does not.

    Args:
        best: Networks with weights of its own for each task (see `MultiTaskNetwork.unshared`).
        patience: Evaluations without a lower error after which a task is stopped; at least 1.

    Attributes:
        best: The same, with the best weights of each task that has been evaluated.
        best_wrong: `(T,)` int64, wrong predictions at the best evaluation, -1 before the first.
        best_step: `(T,)` int64, the step of that evaluation, -1 before the first.
        waited: `(T,)` int64, evaluations since then.
        judged_step: Int64, the step of the last evaluation that was taken into account; the same one made again after a
            stop is not.
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
        """The assignment that `best` is used with, `(L, T)`: copy t for task t."""
        return torch.arange(self.num_tasks).repeat(len(self.best.layers), 1)

    def tasks_in_training(self) -> list[int]:
        """Returns the tasks that have not been stopped, ascending."""
        return [task for task, waited in enumerate(self.waited.tolist()) if waited < self.patience]

    def has_best(self, task: int) -> bool:
        """Whether a task has been evaluated, so that `best` holds its network."""
        return int(self.best_step[task]) >= 0

    def drop_gradients(self, network: TaskNetworks, assignment: Tensor) -> None:
        """Takes the gradients away of weights that only stopped tasks use, so that Adam leaves them as they are."""
        training = self.tasks_in_training()
        used = {id(weights) for task in training for weights in network.task_parameters(assignment, task)}
        for task in set(range(self.num_tasks)) - set(training):
            for weights in network.task_parameters(assignment, task):
                if id(weights) not in used:
                    weights.grad = None

    def judge(
        self,
        network: TaskNetworks,
        assignment: Tensor | None,
        wrong: Sequence[int],
        step: int,
        task_names: Sequence[str],
    ) -> list[str]:
        """Takes an evaluation into account.

        Args:
            network: The networks that were evaluated.
            assignment: `(L, T)`, what they were evaluated under.
            wrong: Wrong predictions of each of the T tasks.
            step: Of the evaluation.
            task_names: Of the T tasks.

        Returns:
            Sentences about the tasks that stop now.
        """
        if int(self.judged_step) == step:
            return []
        self.judged_step.fill_(step)
        stopped = []
        for task in self.tasks_in_training():
            best = int(self.best_wrong[task])
            if 0 <= best <= wrong[task]:
                self.waited[task] += 1
                if int(self.waited[task]) == self.patience:
                    stopped.append(f"{task_names[task]} stops; its best step was {int(self.best_step[task])}.")
                continue
            kept, current = self.best.task_modules(self.best_assignment, task), network.task_modules(assignment, task)
            for ours, theirs in zip(kept, current, strict=True):
                ours.load_state_dict(theirs.state_dict())
            self.best_wrong[task], self.best_step[task], self.waited[task] = wrong[task], step, 0
        return stopped

    def details(self, task_names: Sequence[str]) -> dict[str, Any]:
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
                for task, name in enumerate(task_names)
            }
        }
