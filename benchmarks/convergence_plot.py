"""The plot of `benchmarks.convergence`: loss against samples, and against seconds."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.convergence_report import Comparison, by_final_loss

# Okabe and Ito's colours, made to be told apart by colour-blind people, without the pale yellow.
# Methods that know no matrices are dashed; so a colour may serve twice.
LINES = {
    "SGD": ("#0072B2", "--"),
    "SGD, momentum": ("#009E73", "--"),
    "AdamW": ("#CC79A7", "--"),
    "NGSGD none": ("#D55E00", "--"),
    "Muon": ("#009E73", "-"),
    "Muon, all matrices": ("#000000", "-"),
    "Shampoo": ("#E69F00", "-"),
    "SOAP": ("#CC79A7", "-"),
    "NGSGD simple": ("#0072B2", "-"),
    "NGSGD online": ("#D55E00", "-"),
}


def plot(comparison: Comparison, file: Path) -> None:
    """Write the figure; the file's suffix says the format."""
    # So that the same results give the same bytes; the date is left out for this reason too.
    with matplotlib.rc_context({"svg.hashsalt": "natgrad"}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        against_samples, against_seconds = figure.subplots(1, 2, sharey=True)
        for name in by_final_loss(comparison):
            draw(comparison, name, against_samples, against_seconds)
        against_samples.set_xlabel("training samples, thousands")
        against_samples.set_ylabel("loss on held-out data (nats per sample)")
        against_seconds.set_xlabel("CPU seconds of training (one thread, logarithmic)")
        against_seconds.set_xscale("log")
        for axes in (against_samples, against_seconds):
            axes.grid(alpha=0.3)
        against_seconds.xaxis.set_major_formatter("{x:g}")
        figure.legend(
            *against_samples.get_legend_handles_labels(),
            loc="outside right center",
            title="by final loss",
            frameon=False,
        )
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata)


def draw(comparison: Comparison, name: str, against_samples: Axes, against_seconds: Axes) -> None:
    """Draw the mean of a contender's runs, and from least to greatest as a band."""
    colour, dashes = LINES[name]
    width = 2.2 if name.startswith("NGSGD") else 1.5
    columns = list(zip(*(run.points for run in comparison.of(name)), strict=False))
    samples = [column[0].num_samples / 1000 for column in columns]
    # The start, at zero seconds, has no place on a logarithmic axis.
    seconds = [mean(point.seconds for point in column) or float("nan") for column in columns]
    losses = [mean(point.loss for point in column) for column in columns]
    least = [min(point.loss for point in column) for column in columns]
    greatest = [max(point.loss for point in column) for column in columns]
    for axes, x in ((against_samples, samples), (against_seconds, seconds)):
        axes.plot(x, losses, color=colour, linestyle=dashes, linewidth=width, label=name)
        axes.fill_between(x, least, greatest, color=colour, alpha=0.15, linewidth=0)
