"""What a run leaves in its folder: the record and the curve, and atomic writing; without torch and Lightning."""

from lws_lightning.records.classes import CLASSES_FILE, ClassResult, ClassResults, TaskClasses, find_classes
from lws_lightning.records.curve import CurveRow, curve_from_csv, curve_to_csv, insert_row
from lws_lightning.records.decisions import DECIDED, Decisions, probabilities_by_copy
from lws_lightning.records.evaluation import Evaluation, TaskEvaluation, wilson_interval
from lws_lightning.records.files import BestEffortWriter, mark_failed_in_place, write_atomically
from lws_lightning.records.identity import (
    TRAINER_OPTIONS,
    Identity,
    changed_options,
    default_options,
    options_to_json,
)
from lws_lightning.records.json_values import Record, to_json_value
from lws_lightning.records.run import (
    RECORD_FILE,
    Hardware,
    InferenceCost,
    Latency,
    Run,
    Status,
    find_run,
    load_runs,
    read_run,
)

__all__ = [
    "CLASSES_FILE",
    "DECIDED",
    "RECORD_FILE",
    "TRAINER_OPTIONS",
    "BestEffortWriter",
    "ClassResult",
    "ClassResults",
    "CurveRow",
    "Decisions",
    "Evaluation",
    "Hardware",
    "Identity",
    "InferenceCost",
    "Latency",
    "Record",
    "Run",
    "Status",
    "TaskClasses",
    "TaskEvaluation",
    "changed_options",
    "curve_from_csv",
    "curve_to_csv",
    "default_options",
    "find_classes",
    "find_run",
    "insert_row",
    "load_runs",
    "mark_failed_in_place",
    "options_to_json",
    "probabilities_by_copy",
    "read_run",
    "to_json_value",
    "wilson_interval",
    "write_atomically",
]
