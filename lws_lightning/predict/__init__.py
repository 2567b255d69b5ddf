"""Class probabilities of image files: `lws predict`."""

from lws_lightning.predict.command import predict
from lws_lightning.predict.images import ImageFiles, decoder_for, find_images
from lws_lightning.predict.writer import PredictionWriter

__all__ = ["ImageFiles", "PredictionWriter", "decoder_for", "find_images", "predict"]
