"""Runs that are stopped at a given moment in a given way, and what they leave."""

import os
import signal
from pathlib import Path

import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from small import state_of

from lws_lightning.checkpoints import newest_checkpoint
from lws_lightning.run_folders import claimed_folder

STEPS, INTERVAL = 8, 3  # the last step is no multiple of the interval
IN_STEP, IN_EVALUATION = 4, 6
MOMENTS = ("nes", "gradient", "update", "before_step", "after_step", "evaluation", "evaluation_end", "saving")
STATUS = {"SIGINT": 1, "SIGTERM": 143, "SIGUSR1": 138}
"""Exit status of the process; after Ctrl-C, 1 from Lightning and 130 from the command `lws`."""


class Strike(Callback):
    """Stops a run, once.

    Args:
        moment: One of `MOMENTS`.
        how: Name of a signal, `error`, or `interrupt`, an exception as a second Ctrl-C raises it.
        ranks: The processes that it happens to.
    """

    def __init__(self, moment, how, ranks=(0,)):
        self.moment, self.how, self.ranks = moment, how, ranks
        self.done = False

    def setup(self, trainer, pl_module, stage):
        self.trainer = trainer
        places = {
            "nes": (pl_module.update, "_refuse_non_finite"),
            "gradient": (pl_module.scheme, "rescale_gradients"),
            "update": (pl_module.network, "commit_running_stats"),
        }
        if self.moment in places:
            owner, name = places[self.moment]
            original = getattr(owner, name)

            def struck(*arguments):
                self.strike(self.moment, IN_STEP)
                return original(*arguments)

            setattr(owner, name, struck)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.strike("before_step", IN_STEP)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.strike("after_step", IN_STEP)

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        if batch_idx == 1:
            self.strike("evaluation", IN_EVALUATION)

    def on_validation_end(self, trainer, pl_module):
        self.strike("evaluation_end", IN_EVALUATION)

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        self.strike("saving", IN_EVALUATION)

    def strike(self, moment, step):
        if self.done or moment != self.moment or self.trainer.global_step != step:
            return
        self.done = True
        if self.trainer.global_rank not in self.ranks:
            return
        if self.how == "error":
            raise RuntimeError("a fault")
        if self.how == "interrupt":
            raise KeyboardInterrupt
        os.kill(os.getpid(), getattr(signal, self.how))


class Evaluations(Callback):
    """Records how many images each evaluation has counted, by step."""

    def __init__(self):
        self.images = {}

    def on_validation_end(self, trainer, pl_module):
        (evaluation,) = pl_module.evaluations.values()
        self.images[trainer.global_step] = sum(task.images for task in evaluation.tasks.values())


def saving(folder):
    return ModelCheckpoint(
        dirpath=Path(folder) / "checkpoints", filename="{step}", every_n_epochs=1, save_on_train_epoch_end=False,
        save_top_k=-1, save_last=True, enable_version_counter=False,
    )  # fmt: skip


def newest(folder):
    """The checkpoint that `lws sweep` would resume from; None if stopped before the first."""
    return newest_checkpoint(Path(folder))


def what_is_left(folder, module, trainer, evaluations):
    """Everything that must be equal in a resumed and an uninterrupted run."""
    last = torch.load(Path(folder) / "checkpoints/last.ckpt", weights_only=True)
    rows = [line.split(",") for line in (claimed_folder(trainer) / "curve.csv").read_text().splitlines()]
    seconds = rows[0].index("seconds")
    return {
        "state": state_of(module, trainer),
        "last": {name: last[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "lws_evaluation")},
        "last step": last["global_step"],
        "counters": last["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"],
        "curve": [row[:seconds] + row[seconds + 1 :] for row in rows],
        "images": evaluations.images,
    }


def same(one, other):
    """Whether two nested values are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def assert_left_the_same(one, other):
    assert one.keys() == other.keys()
    different = [name for name in one if not same(one[name], other[name])]
    plain = {name: (one[name], other[name]) for name in different if name not in ("state", "last")}
    assert not different, plain
