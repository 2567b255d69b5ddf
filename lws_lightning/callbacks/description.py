"""Creates the record of a run."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Trainer

from lws_lightning.callbacks.environment import data_digest, hardware, versions
from lws_lightning.methods import MultiTaskMethod
from lws_lightning.records import (
    TRAINER_OPTIONS,
    Identity,
    Run,
    changed_options,
    default_options,
    options_to_json,
    probabilities_by_copy,
)
from lws_lightning.search import SearchDistribution

__all__ = ["describe_run", "identity_of", "other_run"]


def identity_of(trainer: Trainer, method: MultiTaskMethod) -> Identity:
    """Returns the options that a run's result depends on; a DataModule without `identity` contributes none."""
    data = getattr(trainer, "datamodule", None)
    return Identity(method.identity, getattr(data, "identity", {}), str(trainer.precision))


def describe_run(trainer: Trainer, method: MultiTaskMethod, **progress: Any) -> Run:
    """Creates the record of a run.

    Args:
        trainer: Its Trainer.
        method: The method that it trains.
        **progress: The fields of `Run` that neither the Trainer nor the method knows.
    """
    data = getattr(trainer, "datamodule", None)
    distribution = method.distribution
    return Run(
        method=method.method_name,
        network=method.network_name,
        data=None if data is None else type(data).__name__,
        data_digest=data_digest(data),
        task_names=list(method.task_names),
        layer_names=list(method.layer_names),
        weights_per_layer=[int(size) for size in method.weights_per_layer],
        seed=int(method.seed),
        max_steps=trainer.max_steps,
        identity=identity_of(trainer, method),
        neutral={"method": _neutral(method), "data": _neutral(data)},
        defaults=default_options(type(method), MultiTaskMethod),
        training_options=sorted(method.training_options),
        trainer=options_to_json({name: getattr(trainer, name) for name in TRAINER_OPTIONS}),
        entropies=_entropies(distribution, method.layer_names),
        probabilities=_probabilities(distribution, method.weights_per_layer),
        assignment=method.assignment.tolist(),
        details=method.details(),
        parameters_in_use=method.network.parameters_in_use(method.assignment),
        parameters_total=sum(parameter.numel() for parameter in method.network.parameters()),
        versions=versions(),
        hardware=hardware(trainer.strategy.root_device),
        processes=trainer.world_size,
        **progress,
    )


def other_run(run: Run, trainer: Trainer, module: MultiTaskMethod) -> str:
    """Lists how the recorded run differs from the one whose networks are tested, empty if they may be the same.

    Options of the start are not recorded in trained networks, and evaluations do not depend on those of batches.
    """
    data, identity = getattr(trainer, "datamodule", None), identity_of(trainer, module)
    ignored = module.start_options | getattr(data, "batch_options", frozenset()) - {"seed"}
    recorded = {
        "data": run.data,
        "method": run.method,
        "network": run.network,
        **run.identity.data,
        **run.identity.method,
    }
    tested = {
        "data": data and type(data).__name__,
        "method": module.method_name,
        "network": module.network_name,
        **identity.data,
        **identity.method,
    }
    changed = changed_options(recorded, tested).items()
    return ", ".join(f"{name} {old}, not {new}" for name, (old, new) in changed if name not in ignored)


def _neutral(module: Any) -> dict[str, Any]:
    """Returns the options that a method or DataModule declares to have no effect on results."""
    names: frozenset[str] = getattr(module, "neutral_options", frozenset())
    return options_to_json({name: value for name, value in getattr(module, "hparams", {}).items() if name in names})


def _entropies(distribution: SearchDistribution | None, layer_names: Sequence[str]) -> dict[str, Any] | None:
    if distribution is None:
        return None
    nats = distribution.entropy().double().mean(1)
    normalized = distribution.normalized_entropy().double().mean(1)
    return {
        "mean": float(nats.mean()),
        "layers": dict(zip(layer_names, nats.tolist(), strict=True)),
        "normalized_mean": float(normalized.mean()),
        "normalized_layers": dict(zip(layer_names, normalized.tolist(), strict=True)),
    }


def _probabilities(
    distribution: SearchDistribution | None, weights_per_layer: Sequence[int]
) -> list[list[list[float]]] | None:
    """Returns K_l probabilities by layer and task, without padding, rounded to six significant digits.

    This keeps the record of 50 tasks with 20 copies short, and the affinity accurate to 1e-6.
    """
    if distribution is None:
        return None
    layers = probabilities_by_copy(distribution.probs.double().tolist(), weights_per_layer)
    return [[[float(f"{value:.6g}") for value in task] for task in layer] for layer in layers]
