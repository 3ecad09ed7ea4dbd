"""What is told of the eigenvalues of the Fisher matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from natgrad.recipes.reproduce.across_seeds import across, markdown_table
from natgrad.recipes.reproduce.eigenvalues.figures import (
    alpha_figure,
    quantile_figure,
    rank_figure,
)
from natgrad.recipes.reproduce.eigenvalues.results import COLUMNS, VARIANTS, EigenvalueResults
from natgrad.recipes.reproduce.experiment import Found, Report

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.eigenvalues.experiment import EigenvalueSettings

__all__ = ["report"]

LAYER_COLUMNS = ("within_wide", "log10_std", "largest")


def report(settings: EigenvalueSettings, found: Mapping[str, Found]) -> Report:
    """Return what is told."""
    results = EigenvalueResults(settings, found)
    return Report(
        "The Fisher matrix in variables in which the factored one is unit",
        _answer(results),
        [
            quantile_figure(results),
            _method(results),
            "## The whole matrix\n\nThe Fisher matrix proper, at the end of training.",
            _whole_table(results, "true"),
            "The empirical Fisher matrix (gradients at the labels of the data), which the online "
            "factors are estimated from.",
            _whole_table(results, "empirical"),
            _reading(),
            "## Layer by layer\n\nOf the diagonal blocks of the Fisher matrix proper, one per "
            "weight matrix.",
            _layer_table(results),
            "## During training",
            _moment_table(results),
            "## What smoothing costs, and what rank brings",
            alpha_figure(results),
            rank_figure(results),
        ],
    )


def _answer(results: EigenvalueResults) -> str:
    before, online, exact = "before", "online", "exact"
    text, alpha = results.text, results.settings.training.alpha
    narrower = [
        after["log10_std"] < was["log10_std"] and after["within_wide"] > was["within_wide"]
        for was, after in zip(results.of(before), results.of(online), strict=True)
    ]
    verdict = (
        "**Yes**, with every seed"
        if all(narrower)
        else f"**Not always**: with {sum(narrower)} of {len(narrower)} seeds"
    )
    training = results.settings.training
    layers = {name: results.layers(name) for name in (before, online, exact)}
    return f"""\
{verdict}. Of the eigenvalues that can be other than zero, {text(before, "within_wide")} are
within a factor of 10 of their mean before the change of variables, and
{text(online, "within_wide")} after it, with the online factors as they are (rank
{training.rank_out}, no smoothing). The mean eigenvalue is then {text(online, "mean")} without any
scaling: the distribution is indeed about 1. It is not narrow: the middle 80 % of the eigenvalues
lie within {text(online, "decades_90_10")} decades, where it was {text(before, "decades_90_10")}.
What shrinks most is the top: the largest eigenvalue, which bounds the learning rate, is
{text(before, "largest")} times the mean before, and {text(online, "largest")} times after.

What is missing can be told apart. *Low rank*: with exact covariances, and no smoothing,
{text(exact, "within_wide")} are within a factor of 10, and the largest is {text(exact, "largest")}
times the mean. The online method finds what its rank allows: the best factors, of rank
{training.rank_out} on both sides, are at {text(f"best-{training.rank_out}", "within_wide")}.
*The Kronecker product*: with the diagonal blocks of the Fisher matrix itself it would be
{text("blocks", "within_wide")} and {text("blocks", "largest")} times. *One block per layer* is
what keeps even these from the unit matrix. Within a layer, the product does well: of the
eigenvalues of each diagonal block, from the first layer to the last, {layers[exact]} are within a
factor of 10 with exact covariances, {layers[online]} with the online factors, {layers[before]}
before.

As NGSGD steps, with alpha = {alpha:g}, most of this is given away on purpose:
{text("as-steps", "within_wide")} are within a factor of 10, and the largest is
{text("as-steps", "largest")} times the mean. Exact covariances, smoothed, are at
{text("exact-alpha", "within_wide")} and {text("exact-alpha", "largest")}, where the online factors,
smoothed, are at {text("online-alpha", "within_wide")} and {text("online-alpha", "largest")}: it is
smoothing, not low rank, that keeps NGSGD from the natural gradient of the factored matrix.

(Means of {len(results.settings.seeds)} seeds, each with its own network, data and training; in
brackets the least and the greatest.)"""


def _method(results: EigenvalueResults) -> str:
    training = results.settings.training
    hidden = ", ".join(f"{units} -> {groups}" for units, groups in training.hidden)
    zero, least = (
        max(one["largest_zero"] for one in results.of("before")),
        min(one["least"] for one in results.of("before")),
    )
    return f"""\
## What was measured

A p-norm network with hidden layers {hidden}, of {results.fact("num_parameters").mean:.0f}
parameters with biases, learns {training.num_classes} phones of synthesised voices from
{2 * training.context + 1} frames of 13 MFCC: {training.num_minibatches} minibatches of
{training.minibatch_size} by online NG-SGD with rank {training.rank_in} (inputs) and
{training.rank_out} (outputs). On frames of other utterances its objective is then
{results.fact("objective").text()} per frame.

On about {results.settings.fisher_frames} of these frames the whole Fisher matrix is computed, in
float64: "true" with the expectation over labels by the network's own posteriors (exactly, not by
sampling), "empirical" with the labels of the data. The authors ask (section 5.1) for its
eigenvalues after a linear change of variables that makes diag(A_i (x) B_i) the unit matrix.

{results.fact("num_invariances").mean:.0f} eigenvalues are zero whatever the data: groups of a
2-norm can be rotated, hidden layers scaled, and a vector added to all rows of the last matrix, and
nothing changes. They stay zero in any variables and are left out. (They are found as such: at most
{zero:.0e} of the mean, where the least of the others is {least:.0e}.)"""


def _reading() -> str:
    return """\
- *mean* and *median* are in the units of the matrix: before the change they say nothing. All else
  does not depend on the scale, which the learning rate makes up for.
- *online factors* and *exact covariances* are what section 5.1 asks for; *exact blocks* are those
  of the Fisher matrix itself, one per weight matrix; *smoothed* is with alpha; *as NGSGD steps* is
  with the scale, too, that keeps the length of a step and so sets layers against one another.
  *simple* has the covariances of one minibatch.
- *largest / mean* bounds the learning rate. *flatness* is (sum)^2 / (number x sum of squares): 1 if
  all eigenvalues are the same."""


def _whole_table(results: EigenvalueResults, kind: str) -> str:
    head = ["", *(title for title, _ in COLUMNS.values())]
    rows = [
        [title, *(results.text(name, key, kind=kind) for key in COLUMNS)]
        for name, title in VARIANTS.items()
    ]
    return markdown_table(head, rows)


def _layer_table(results: EigenvalueResults) -> str:
    num_layers = len(results.of("before")[0]["blocks"])
    names = ("before", "online", "exact", "as-steps")
    rows = []
    for layer in range(num_layers):
        title = f"hidden {layer + 1}" if layer < num_layers - 1 else "output"
        for name in names:
            values = []
            for key in LAYER_COLUMNS:
                spreads = [one["blocks"][layer][key] for one in results.of(name)]
                values.append(across(spreads).text(COLUMNS[key][1]))
            relative = [one["blocks"][layer]["mean"] / one["mean"] for one in results.of(name)]
            values.append(across(relative).text())
            rows.append([title, VARIANTS[name], *values])
    head = ["layer", "", *(COLUMNS[key][0] for key in LAYER_COLUMNS), "mean / mean of all"]
    return markdown_table(head, rows)


def _moment_table(results: EigenvalueResults) -> str:
    keys = ("within_wide", "log10_std", "largest")
    names = ("before", "online", "exact", "as-steps")
    rows = [
        [
            str(moment),
            results.fact("objective", moment).text(),
            VARIANTS[name],
            *(results.text(name, key, moment) for key in keys),
        ]
        for moment in results.settings.moments
        for name in names
    ]
    return markdown_table(
        ["minibatches", "objective", "", *(COLUMNS[key][0] for key in keys)], rows
    )
