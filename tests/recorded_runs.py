"""The record of a run that never was, complete, for tests of whatever reads records."""

from lws_lightning import methods
from lws_lightning.records import default_options

KINDS = {
    **dict.fromkeys(("full", "none", "prior"), methods.FixedSharing),
    "learned": methods.LearnedWeightSharing,
    "early_stopping": methods.IndependentEarlyStopping,
    "uncertainty": methods.UncertaintyWeighting,
    "undirected": methods.UndirectedSharing,
    "routing": methods.RoutingNetworks,
    "fully_adaptive": methods.FullyAdaptiveSharing,
    "cross_stitch": methods.CrossStitch,
    "sluice": methods.Sluice,
    "soft_layer_ordering": methods.SoftLayerOrdering,
}


def options_of(method):
    """The default values of a method's options; a user's method has none here."""
    kind = KINDS.get(method)
    return {} if kind is None else default_options(kind, methods.MultiTaskMethod)


def recorded(hparams=None, data_options=None, precision="32-true", neutral=None, **changes):
    """What `result.json` holds, with given keys changed.

    `hparams` and `data_options` are the chosen options of method and data, those that a result depends on.
    """
    method, seed = changes.get("method", "learned"), changes.get("seed", 0)
    options = {**options_of(method), **({"learning_rate": 0.1} if hparams is None else hparams), "seed": seed}
    weights_per_layer = changes.get("weights_per_layer", [2])
    for each in methods.MultiTaskMethod.neutral_options:
        options.pop(each, None)
    return {
        "format": 1,
        "status": "finished",
        "message": "",
        "method": method,
        "network": "small",
        "data": "Digits",
        "data_digest": "d1",
        "task_names": ["low", "high"],
        "layer_names": ["conv"],
        "weights_per_layer": weights_per_layer,
        "seed": seed,
        "step": 100,
        "max_steps": 100,
        "stopped_by": None,
        "evaluation": measure(),
        "test": None,
        "identity": {
            "method": {**options, "weights_per_layer": weights_per_layer},
            "data": {"batch_size": 16, **(data_options or {}), "seed": seed},
            "precision": precision,
        },
        "neutral": {"method": {}, "data": {}, **(neutral or {})},
        "defaults": options_of(method),
        "training_options": sorted(methods.MultiTaskMethod.training_options),
        "trainer": {"val_check_interval": 50},
        "entropies": None,
        "probabilities": None,
        "decisions": None,
        "assignment": [[0, 0]],
        "details": {},
        "parameters_in_use": 1234,
        "parameters_total": 2000,
        "inference": {},
        "latency": None,
        "seconds": 50.0,
        "seconds_evaluation": 5.0,
        "seconds_per_step": 0.5,
        "versions": {"torch": "2.6"},
        "hardware": {"cpu": "X", "cores": 2, "threads": 1, "gpu": None},
        "processes": 1,
        "started": "2024-01-01T00:00:00+00:00",
        "ended": "2024-01-01T00:00:00+00:00",
    } | changes


def measure(prefix="test_curve", step=100, low=10.0, high=20.0, images=(100, 300)):
    return {
        "prefix": prefix,
        "step": step,
        "error": (low * images[0] + high * images[1]) / sum(images),
        "error_task_mean": (low + high) / 2,
        "loss": 0.5,
        "images": sum(images),
        "tasks": {"low": {"error": low, "images": images[0]}, "high": {"error": high, "images": images[1]}},
    }
