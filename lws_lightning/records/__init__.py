"""What a run leaves in its folder: the record and the curve, and how files get there whole."""

from lws_lightning.records.checkpoint_io import WholeFileIO, save_whole_files
from lws_lightning.records.curve import CurveRow, curve_from_csv, curve_to_csv, put_row
from lws_lightning.records.evaluation import Evaluation, TaskEvaluation
from lws_lightning.records.files import CarefulWriter, mark_failed_in_place, write_atomically
from lws_lightning.records.folder import (
    fixed_folder,
    has_own_place,
    is_dry_run,
    reason_to_spare,
    release_folder,
    run_folder,
    take_folder,
    taken_folder,
)
from lws_lightning.records.identity import (
    TRAINER_OPTIONS,
    Identity,
    changed_options,
    default_options,
    plain_options,
)
from lws_lightning.records.plain import Record, to_plain
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
    "RECORD_FILE",
    "TRAINER_OPTIONS",
    "CarefulWriter",
    "CurveRow",
    "Evaluation",
    "Hardware",
    "Identity",
    "InferenceCost",
    "Latency",
    "Record",
    "Run",
    "Status",
    "TaskEvaluation",
    "WholeFileIO",
    "changed_options",
    "curve_from_csv",
    "curve_to_csv",
    "default_options",
    "find_run",
    "fixed_folder",
    "has_own_place",
    "is_dry_run",
    "load_runs",
    "mark_failed_in_place",
    "plain_options",
    "put_row",
    "read_run",
    "reason_to_spare",
    "release_folder",
    "run_folder",
    "save_whole_files",
    "take_folder",
    "taken_folder",
    "to_plain",
    "write_atomically",
]
