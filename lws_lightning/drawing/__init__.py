"""Figures of the sharing, and helpers for all figures. Without pyplot or global state."""

from lws_lightning.drawing.affinity import affinity_figure, affinity_of_assignment, affinity_of_probabilities
from lws_lightning.drawing.assignment import assignment_figure, groups_text
from lws_lightning.drawing.confusion import confusion_figure
from lws_lightning.drawing.probabilities import probabilities_figure
from lws_lightning.drawing.rendering import array_png, picture_array, picture_png, picture_svg
from lws_lightning.drawing.sheet import Sheet, inches, upright_if_crowded
from lws_lightning.drawing.style import copy_letter, ink_on, literal_text, shorten
from lws_lightning.drawing.wrong_images import WrongImage, wrong_images_figure

__all__ = [
    "Sheet",
    "WrongImage",
    "affinity_figure",
    "affinity_of_assignment",
    "affinity_of_probabilities",
    "array_png",
    "assignment_figure",
    "confusion_figure",
    "copy_letter",
    "groups_text",
    "inches",
    "ink_on",
    "literal_text",
    "picture_array",
    "picture_png",
    "picture_svg",
    "probabilities_figure",
    "shorten",
    "upright_if_crowded",
    "wrong_images_figure",
]
