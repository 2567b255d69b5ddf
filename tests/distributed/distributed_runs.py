"""What the tests let each of two processes do. Everything returned is plain or a tensor, to go through a pipe."""

import os
import signal

import torch
from distributed_small import Uneven, conv_without_norm, small_trainer
from lightning.pytorch import Callback
from small import state_of, tiny_network
from stopped_runs import INTERVAL, STEPS, Evaluations, Strike, saving, what_is_left

import lws_lightning.methods as methods
from lws_lightning.callbacks import ErrorMonitor

NETWORKS = {"norm": tiny_network, "plain": conv_without_norm}


class Wrong(ErrorMonitor):
    """Keeps the wrongly classified images that it draws."""

    def on_test_end(self, trainer, pl_module):
        wrong = self._wrong
        super().on_test_end(trainer, pl_module)
        names = pl_module.data_record.class_names
        self.found = [
            sorted((each.true, each.predicted, round(each.probability, 5), each.image.tolist()) for each in images)
            for images in wrong.found(names)
        ]


class EveryStep(Callback):
    """Keeps the whole state after every step."""

    def __init__(self):
        self.states = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.states.append(state_of(pl_module, trainer))


def fit(
    folder, kind="LearnedWeightSharing", network="norm", data=None, trainer=None, every_step=False, fault=None,
    ckpt_path=None, save=None, **options,
):  # fmt: skip
    """Trains; returns the last state, those of every step, the evaluations and what Lightning logged."""
    datamodule = Uneven(**{"batch_size": 4, "seed": 1, **(data or {})})
    kind = getattr(methods, kind)
    defaults = {"nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1} if kind is methods.LearnedWeightSharing else {}
    module = kind(**{"network": NETWORKS[network], "seed": 1, **defaults, **datamodule.task_info, **options})
    watch = EveryStep()
    run = small_trainer(folder, **{"callbacks": [watch] if every_step else [], **(trainer or {})})
    if fault is not None:
        FAULTS[fault](module)
    run.fit(module, datamodule=datamodule, ckpt_path=ckpt_path)
    if save is not None:
        run.save_checkpoint(save)
    return {
        "state": state_of(module, run),
        "states": watch.states,
        "evaluations": module.evaluations,
        "logged": {name: float(value) for name, value in run.callback_metrics.items()},
        "step": run.global_step,
        "epoch_steps": run.num_training_batches,
    }


def stoppable(folder, ckpt_path=None, strike=None, decay=None, **options):
    """Trains with checkpoints after evaluations; `strike` are the arguments of `Strike`."""
    evaluations = Evaluations()
    callbacks = [*([] if strike is None else [Strike(*strike)]), evaluations, saving(folder)]
    datamodule = Uneven(batch_size=4, seed=1)
    defaults = {"nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1, "network": tiny_network, "seed": 1}
    module = methods.LearnedWeightSharing(**{**defaults, **datamodule.task_info, **options}, ema_decay=decay)
    trainer = small_trainer(
        folder, max_steps=STEPS, val_check_interval=INTERVAL, check_val_every_n_epoch=None, callbacks=callbacks,
        enable_checkpointing=True,
    )  # fmt: skip
    try:
        trainer.fit(module, datamodule=datamodule, ckpt_path=ckpt_path)
    except SystemExit as error:
        return error.code, evaluations.images
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning leaves it ignored
    return what_is_left(folder, module, trainer, evaluations)


def evaluate(folder, ckpt_path, **data):
    """Tests a checkpoint; returns the evaluation and the numbers of the images that this process saw."""
    datamodule = Uneven(**{"batch_size": 4, "seed": 1, **data})
    module = methods.FixedSharing.load_from_checkpoint(ckpt_path, network=tiny_network, seed=1)
    seen = []
    update = module.errors.update
    module.errors.update = lambda task, logits, labels: (seen.append((task, len(labels))), update(task, logits, labels))
    wrong = Wrong(run_dir=str(folder))
    small_trainer(folder, callbacks=[wrong]).test(module, datamodule=datamodule, verbose=False)
    return {
        "evaluation": module.evaluations["test"],
        "seen": seen,
        "classes": wrong.class_results,
        "wrong": wrong.found,
    }


def _loss_of_rank_one(module):
    """Makes a loss NaN on one rank only, at step 2."""
    losses_of = module.objective.losses

    def broken(logits, labels, tasks):
        losses = losses_of(logits, labels, tasks)
        failing = module.engine.ranks.rank == 1 and module.global_step == 2 and torch.is_grad_enabled()
        return losses * float("nan") if failing else losses

    module.objective.losses = broken


def _nes_loss_of_rank_one(module):
    losses_of = module.objective.losses

    def broken(logits, labels, tasks):
        losses = losses_of(logits, labels, tasks)
        failing = module.engine.ranks.rank == 1 and module.global_step == 2 and not torch.is_grad_enabled()
        return losses * float("nan") if failing else losses

    module.objective.losses = broken


def _other_seed(module):
    module.seed += int(os.environ["RANK"])


def _other_pi(module):
    if int(os.environ["RANK"]) == 1:
        probs = module.distribution.probs.clone()
        probs[0, 0] = torch.tensor([0.5, 0.3, 0.2])
        module.distribution.restore({"probs": probs})


FAULTS = {
    "sgd": _loss_of_rank_one,
    "nes": _nes_loss_of_rank_one,
    "seed": _other_seed,
    "pi": _other_pi,
}
