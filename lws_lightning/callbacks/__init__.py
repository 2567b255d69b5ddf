"""What watches a run: scalars and pictures of the sharing, and the record in the run folder."""

from lws_lightning.callbacks.affinity import affinity_figure, affinity_of_assignment, affinity_of_probabilities
from lws_lightning.callbacks.drawing import (
    copy_letter,
    ink_on,
    literal_text,
    picture_png,
    picture_svg,
    shorten,
    text_width,
    tint,
)
from lws_lightning.callbacks.pictures import assignment_figure, groups_text, probabilities_figure
from lws_lightning.callbacks.progress import StepProgressBar
from lws_lightning.callbacks.run_record import RunRecord
from lws_lightning.callbacks.sharing_monitor import SharingMonitor
from lws_lightning.callbacks.tags import tags_of

__all__ = [
    "RunRecord",
    "SharingMonitor",
    "StepProgressBar",
    "affinity_figure",
    "affinity_of_assignment",
    "affinity_of_probabilities",
    "assignment_figure",
    "copy_letter",
    "groups_text",
    "ink_on",
    "literal_text",
    "picture_png",
    "picture_svg",
    "probabilities_figure",
    "shorten",
    "tags_of",
    "text_width",
    "tint",
]
