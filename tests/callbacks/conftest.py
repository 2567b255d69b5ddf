"""A small module that has what the callbacks read, trained by a real Trainer."""

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch.utils.data import DataLoader

from lws_lightning import MultiTaskMethod
from lws_lightning.records import Evaluation, TaskEvaluation

HOOKS = [name for name in dir(LightningModule) if name.startswith(("on_", "configure_", "setup"))]
WithoutHooks = type("WithoutHooks", (MultiTaskMethod,), {name: getattr(LightningModule, name) for name in HOOKS})
"""What the callbacks ask a method for, with the hooks of any LightningModule."""


class FakeDistribution:
    """Grows sharper with the step: the first copy of layer l gets 0.5 + 0.1 * step, at most 0.9."""

    def __init__(self, weights_per_layer, num_tasks):
        self.weights_per_layer = weights_per_layer
        self.probs = torch.zeros(len(weights_per_layer), num_tasks, max(weights_per_layer))
        self.move_to(0)

    def move_to(self, step):
        first = min(0.5 + 0.1 * step, 0.9)
        for layer, size in enumerate(self.weights_per_layer):
            self.probs[layer, :, :size] = (1 - first) / max(size - 1, 1)
            self.probs[layer, :, 0] = first if size > 1 else 1.0

    def entropy(self):
        return torch.special.entr(self.probs).sum(-1)

    def normalized_entropy(self):
        largest = torch.tensor(self.weights_per_layer).float().log()[:, None]
        return torch.where(largest > 0, self.entropy() / largest, 0.0)

    def mode(self):
        return self.probs.argmax(-1)


class FakeNetwork:
    """Has 30 parameters; its module says how many are in use."""

    def __init__(self, module):
        self._module = module

    def parameters_in_use(self, assignment):
        return self._module.parameters_in_use()

    def parameters(self):
        return [torch.zeros(30)]


@pytest.fixture(autouse=True)
def _costs(monkeypatch):
    """A fake module has no network whose costs could be counted."""

    def costs(method):
        return {name: {"parameters": 5 + i, "multiply_adds": 100 * (1 + i)} for i, name in enumerate(method.task_names)}

    monkeypatch.setattr("lws_lightning.callbacks.run_record.inference_costs", costs)
    monkeypatch.setattr("lws_lightning.callbacks.run_record.inference_seconds", lambda method, batch: 0.001 * batch)


class FakeModule(WithoutHooks):
    """Errors fall by one percent a step, from 90; evaluations as the real methods keep them."""

    network_name = "tiny"

    def __init__(
        self, task_names=("a.b", "été/2"), layer_names=("conv", "mean"), weights_per_layer=(2, 3), fixed=False, seed=7
    ):
        LightningModule.__init__(self)
        self.save_hyperparameters({"task_names": list(task_names), "fixed": fixed})
        self.automatic_optimization = False
        self.method_name = "full" if fixed else "learned"
        self.seed = seed
        self.task_names = list(task_names)
        self.layer_names = list(layer_names)
        self.weights_per_layer = list(weights_per_layer)
        self.evaluations = {}
        self.distribution = None if fixed else FakeDistribution(self.weights_per_layer, len(self.task_names))
        self.net = torch.nn.Linear(1, 1)
        self.network = FakeNetwork(self)
        self.raise_at = None
        self.raised = None

    @property
    def assignment(self):
        if self.distribution is None:
            return torch.zeros(len(self.layer_names), len(self.task_names), dtype=torch.int64)
        return self.distribution.mode()

    def parameters_in_use(self):
        return 10

    def details(self):
        return {}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, batch_idx):
        if self.raise_at == self.trainer.global_step:
            raise self.raised
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.net(batch).square().mean())
        optimizer.step()
        if self.distribution is not None:
            self.distribution.move_to(self.trainer.global_step)

    def validation_step(self, batch, batch_idx):
        pass

    def test_step(self, batch, batch_idx):
        pass

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self._evaluate("test_curve", 90.0)

    def on_test_epoch_end(self):
        self._evaluate("test", 50.0)

    def _evaluate(self, prefix, start):
        step = self.trainer.global_step
        error = start - step
        tasks = {name: TaskEvaluation(error + i, 100 * (i + 1)) for i, name in enumerate(self.task_names)}
        self.evaluations[prefix] = Evaluation(prefix, step, error, error + 0.5, 0.25, tasks)


class FakeData(LightningDataModule):
    def __init__(self, batches=4):
        super().__init__()
        self.batches = batches

    def _loader(self, size):
        return DataLoader(torch.ones(size, 1), batch_size=1)

    def train_dataloader(self):
        return self._loader(self.batches)

    def val_dataloader(self):
        return self._loader(1)

    def test_dataloader(self):
        return self._loader(1)


@pytest.fixture
def make_module():
    return FakeModule


@pytest.fixture
def make_data():
    return FakeData


@pytest.fixture
def make_trainer(tmp_path):
    def make(*callbacks, **options):
        defaults = {
            "accelerator": "cpu",
            "max_steps": 6,
            "max_epochs": -1,
            "val_check_interval": 2,
            "check_val_every_n_epoch": None,
            "log_every_n_steps": 2,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "logger": False,
            "default_root_dir": tmp_path,
            "callbacks": list(callbacks),
        }
        return Trainer(**(defaults | options))

    return make
