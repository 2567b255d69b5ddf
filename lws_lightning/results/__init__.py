"""Reads finished runs and compares them."""

from lws_lightning.results.command import report
from lws_lightning.results.report import Report, comparison_table, make_report
from lws_lightning.results.runs import Measurement, Run, load_runs

__all__ = ["Measurement", "Report", "Run", "comparison_table", "load_runs", "make_report", "report"]
