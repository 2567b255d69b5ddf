"""Data sets as LightningDataModules, and the sampling of their batches."""

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.cifar100 import CIFAR100CoarseLabel
from lws_lightning.data.digit_families import DigitFamilies
from lws_lightning.data.digits import Digits
from lws_lightning.data.dkl_mnist import DKLMNIST
from lws_lightning.data.file_names import count_unread, is_ignored, is_image
from lws_lightning.data.folders import ImageFolders
from lws_lightning.data.image_decoding import Decoder, Interpolation, ResizeMode
from lws_lightning.data.image_reading import try_decoding
from lws_lightning.data.omniglot import Omniglot
from lws_lightning.data.sampler import IndexStream, StepBatches
from lws_lightning.data.splits import stratified_subset
from lws_lightning.data.streaming import StreamedImages
from lws_lightning.data.tasks import Examples, TaskData

__all__ = [
    "DKLMNIST",
    "CIFAR100CoarseLabel",
    "Decoder",
    "DigitFamilies",
    "Digits",
    "Examples",
    "ImageFolders",
    "IndexStream",
    "Interpolation",
    "MultiTaskDataModule",
    "Omniglot",
    "ResizeMode",
    "StepBatches",
    "StreamedImages",
    "TaskData",
    "count_unread",
    "is_ignored",
    "is_image",
    "stratified_subset",
    "try_decoding",
]
