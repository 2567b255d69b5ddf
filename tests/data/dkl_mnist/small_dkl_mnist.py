"""DKL-MNIST of few images."""

from lws_lightning.data import DKLMNIST


def small(root, **options):
    return DKLMNIST(str(root), **{"train_images_per_task": 52} | options)
