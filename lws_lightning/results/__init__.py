"""Compares finished runs: `lws report`."""

from lws_lightning.records import Run, load_runs
from lws_lightning.results.command import report
from lws_lightning.results.report import Report, comparison_table, make_report, page_environment
from lws_lightning.results.table import Column, Table

__all__ = [
    "Column",
    "Report",
    "Run",
    "Table",
    "comparison_table",
    "load_runs",
    "make_report",
    "page_environment",
    "report",
]
