"""What a run leaves in its folder: the record and the curve, and atomic writing."""

from lws_lightning.records.checkpoints import save_checkpoints_atomically
from lws_lightning.records.curve import CurveRow, curve_from_csv, curve_to_csv, insert_row
from lws_lightning.records.evaluation import Evaluation, TaskEvaluation
from lws_lightning.records.files import BestEffortWriter, mark_failed_in_place, write_atomically
from lws_lightning.records.folder import (
    claim_folder,
    claimed_folder,
    fixed_folder,
    has_output_location,
    is_dry_run,
    overwrite_refusal,
    release_folder,
    run_folder,
)
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
    "RECORD_FILE",
    "TRAINER_OPTIONS",
    "BestEffortWriter",
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
    "changed_options",
    "claim_folder",
    "claimed_folder",
    "curve_from_csv",
    "curve_to_csv",
    "default_options",
    "find_run",
    "fixed_folder",
    "has_output_location",
    "insert_row",
    "is_dry_run",
    "load_runs",
    "mark_failed_in_place",
    "options_to_json",
    "overwrite_refusal",
    "read_run",
    "release_folder",
    "run_folder",
    "save_checkpoints_atomically",
    "to_json_value",
    "write_atomically",
]
