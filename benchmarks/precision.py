"""`python -m benchmarks.precision`: do the losses of a population keep their order in low precision?

Trains in float32, and on the way evaluates populations on the same batch and weights once in float32 and once in
another precision. Printed are Spearman's correlation of the utilities, the share of assignments whose rank is the same,
and how large the difference of a loss is compared with the deviation of the losses over the population, which is what a
rank depends on.
"""

import argparse
import tempfile
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from benchmarks.random_data import PatternTasks
from lws_lightning import Digits, LearnedWeightSharing
from lws_lightning.batches import TaskBatch
from lws_lightning.data import MultiTaskDataModule
from lws_lightning.randomness import generator_for
from lws_lightning.search import rank_utilities

PRECISIONS = ("bf16-mixed", "bf16-true")
POPULATIONS = 50


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 100, 400])
    parser.add_argument("--size", type=int, default=8, help="S")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data_sets: dict[str, tuple[MultiTaskDataModule, str]] = {
        "digits": (Digits(), "digits_convnet"),
        "patterns": (PatternTasks(), "dkl_convnet"),
    }
    print(f"S={options.size}, {POPULATIONS} populations each, pi of the run, B=16, batches and weights of float32")
    print(f"{'data':<10}{'step':>6}  {'precision':<11}{'correlation':>12}{'equal ranks':>13}{'difference':>12}")
    for name, (data, network) in data_sets.items():
        module = LearnedWeightSharing(network=network, seed=0, **data.task_info)
        data.setup()
        batches = data.train_dataloader().dataset
        with tempfile.TemporaryDirectory() as folder:
            for steps in options.steps:
                _train(module, data, steps, folder)
                found: dict[str, list[tuple[float, float, float]]] = {precision: [] for precision in PRECISIONS}
                for number in range(POPULATIONS):
                    batch = batches[10_000 + number].nes
                    population = module.distribution.sample(options.size, generator_for(0, "precision", number))
                    wide = _losses(module, batch, population, "32-true")
                    for precision in PRECISIONS:
                        found[precision].append(_agreement(wide, _losses(module, batch, population, precision)))
                for precision, values in found.items():
                    correlation, equal, difference = torch.tensor(values).mean(0).tolist()
                    line = f"{correlation:>12.3f}{f'{100 * equal:.0f} %':>13}{f'{100 * difference:.0f} %':>12}"
                    print(f"{name:<10}{steps:>6}  {precision:<11}{line}", flush=True)


def _train(module: LightningModule, data: MultiTaskDataModule, steps: int, folder: str) -> None:
    """Trains up to a step; the module's own state goes on."""
    done = getattr(module, "_done", 0)
    module._done = steps  # type: ignore[assignment]
    if steps == done:
        return
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    path = f"{folder}/last.ckpt"
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        max_epochs=-1,
        limit_val_batches=0,
        default_root_dir=folder,
        enable_checkpointing=False,
        **quiet,
    )
    trainer.fit(module, datamodule=data, ckpt_path=path if done else None, weights_only=True)
    trainer.save_checkpoint(path)


@torch.no_grad()
def _losses(module: LearnedWeightSharing, batch: TaskBatch, population: Tensor, precision: str) -> Tensor:
    """Returns the mean loss over tasks of each assignment, `(S,)`."""
    module._trainer = None
    saved = {name: value.clone() for name, value in module.network.state_dict().items()}
    if precision == "bf16-true":
        module.network.bfloat16()
        module._dtype = torch.bfloat16  # what Lightning's precision plugin does
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16-mixed"), module.network.evaluating():
        losses = module.update.losses(batch, population)
    if precision == "bf16-true":
        module.network.float()
        module._dtype = torch.float32
        module.network.load_state_dict(saved)
    assert losses.dtype == torch.float32
    return losses.mean(1)


def _agreement(wide: Tensor, narrow: Tensor) -> tuple[float, float, float]:
    """Returns the correlation of utilities, the share of equal ranks, and the relative difference of losses."""
    one, other = rank_utilities(wide).double(), rank_utilities(narrow).double()
    correlation = float(torch.corrcoef(torch.stack([one, other]))[0, 1]) if one.std() > 0 < other.std() else 1.0
    spread = float(wide.std())
    difference = float((narrow - wide - (narrow - wide).mean()).std()) / spread if spread > 0 else 0.0
    return correlation, float((one == other).double().mean()), difference


if __name__ == "__main__":
    main()
