"""The shipped configurations, and those combinations of them that the documentation names."""

from functools import cache

from locations import CONFIGS

from lws_lightning.cli import resolve_config

OVERLAYS = ("methods", "options")
ROWS = sorted(
    path.relative_to(CONFIGS).with_suffix("").as_posix()
    for path in CONFIGS.glob("*/*.yaml")
    if path.parent.name not in OVERLAYS and path.stem.split("_")[0] not in ("data", "trainer")
)
METHODS = sorted(path.stem for path in (CONFIGS / "methods").glob("*.yaml"))
ON_LEARNED = ("routing", "undirected", "soft_layer_ordering")
"""The first two keep the number of copies, the last on Omniglot the bound on memory."""


def method_rows(row, methods):
    """Combinations of the rows of a network, for example `dkl_mnist/convnet`, with overlays of methods."""
    return [(f"{row}_{'learned' if name in ON_LEARNED else 'none'}", f"methods/{name}") for name in methods]


TRAINING, LEARNED = "options/training_plus", "options/learned_plus"
PLUS = [
    (f"{row}{sharing}", TRAINING, *([LEARNED] if sharing == "learned" else []))
    for row in ("dkl_mnist/convnet_", "image_folders/")
    for sharing in ("learned", "full", "none")
] + [(f"{folder}/convnet_learned", TRAINING, LEARNED) for folder in ("cifar100", "omniglot")]
OTHER_METHODS = [
    *method_rows("dkl_mnist/convnet", METHODS),
    *method_rows("cifar100/convnet", METHODS),
    *method_rows("cifar100/resnet18", ["prior"]),
    *method_rows("omniglot/convnet", ["prior", "soft_layer_ordering"]),
    *method_rows("omniglot/resnet18", ["prior"]),
]
PHOTOGRAPHS = [("image_folders/learned", "options/photographs")]
SHIPPED = [(row,) for row in ROWS] + OTHER_METHODS + PLUS + PHOTOGRAPHS


def repeats(combination):
    """Whether a combination differs from others in the network or in the images only."""
    row, *overlays = combination
    other = row.startswith(("cifar100/", "omniglot/"))
    return other and (bool(overlays) or (row.split("/")[1].startswith("resnet18") and not row.endswith("learned")))


def name_of(combination):
    return "+".join(combination)


def files_of(combination):
    return [CONFIGS / f"{name}.yaml" for name in combination]


def as_options(combination):
    """A combination as `lws fit` takes it."""
    return [word for path in files_of(combination) for word in ("--config", str(path))]


def resolve(combination, *options):
    """All options of a combination, as `lws fit` understands them."""
    return resolve_config(files_of(combination)[0], [*as_options(combination)[2:], *options])


resolved = cache(resolve)
"""The same, once for each combination; not to be changed."""
