"""One HTML page per run or comparison, TensorBoard scalars, and progress: from a run's events."""

from natgrad.report.history import RunHistory, read_run, read_runs
from natgrad.report.page import render, write_report

__all__ = ["RunHistory", "read_run", "read_runs", "render", "write_report"]
