"""The experiments there are, in the order of the page of results."""

from __future__ import annotations

from typing import Any

from natgrad.recipes.reproduce.ablations.experiment import ABLATIONS
from natgrad.recipes.reproduce.eigenvalues.experiment import EIGENVALUES
from natgrad.recipes.reproduce.experiment import Experiment
from natgrad.recipes.reproduce.job_counts.experiment import JOBS, JOBS_AN4
from natgrad.recipes.reproduce.job_counts.word_experiment import WORDS, WORDS_AN4
from natgrad.recipes.reproduce.many_jobs.experiment import MANY_JOBS
from natgrad.recipes.reproduce.online_update.experiment import ONLINE_UPDATE
from natgrad.recipes.reproduce.table_1 import TABLE_1

__all__ = ["EXPERIMENTS"]

_ALL: tuple[Experiment[Any], ...] = (
    JOBS,
    WORDS,
    JOBS_AN4,
    WORDS_AN4,
    TABLE_1,
    MANY_JOBS,
    ABLATIONS,
    EIGENVALUES,
    ONLINE_UPDATE,
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
