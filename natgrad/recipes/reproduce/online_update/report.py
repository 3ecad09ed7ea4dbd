"""What is told of the online update's steady state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from natgrad.recipes.reproduce.across_seeds import significant
from natgrad.recipes.reproduce.experiment import Found, Report
from natgrad.recipes.reproduce.online_update.finite_report import (
    finite_figure,
    finite_table,
    finite_text,
    start_figure,
    start_text,
)
from natgrad.recipes.reproduce.online_update.infinite_report import (
    infinite_figure,
    infinite_table,
    infinite_text,
    wrong_figure,
)
from natgrad.recipes.reproduce.online_update.results import OnlineUpdateResults

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.online_update.experiment import OnlineUpdateSettings

__all__ = ["report"]

CONVERGED = 1e-6  # a relative distance that no use of the factor could tell from none


def report(settings: OnlineUpdateSettings, found: Mapping[str, Found]) -> Report:
    """Return what is told."""
    results = OnlineUpdateResults(settings, found)
    return Report(
        "Where the online update goes",
        _answer(results),
        [
            infinite_figure(results),
            "## Infinite minibatches",
            infinite_text(results),
            infinite_table(results),
            wrong_figure(results),
            "## Finite minibatches",
            finite_text(results),
            finite_figure(results),
            finite_table(results),
            "## From the first minibatch on",
            start_text(results),
            start_figure(results),
        ],
    )


def _answer(results: OnlineUpdateResults) -> str:
    settings = results.settings
    eta = settings.etas[0]
    to_best = max(results.at_end(s, eta, "factor") for s in ("gap", "decaying"))
    to_limit = max(
        max(results.at_end("steep", eta, "from_limit"), to_best),
        *(results.at_end(s, eta, "beyond_limit") for s in ("tie", "flat")),
    )
    verdict = "yes" if to_limit < CONVERGED else f"not in {settings.num_updates} updates"
    batch_size, history = results.middle
    inverse = [results.mean(s, batch_size, history, "inverse").mean for s in ("gap", "decaying")]
    return f"""\
**With infinite minibatches, {verdict}.** From a random start the factor goes to the top
eigenvectors, with their eigenvalues, and with the mean of all others as rho: after
{settings.num_updates} updates its distance from the best factor is at most {to_best:.0e} of its
norm, where the spectrum has a gap. That factor is the best of its form in Frobenius norm, has the
trace of the covariance, and is the maximum-likelihood one (of probabilistic principal component
analysis). The rate is 1 - eta (1 - lambda_R+1 / lambda_R) per update, as derived and as measured.
Every other set of eigenvectors is a fixed point, too, but by the same derivation not a stable one;
one of them is shown below. Two exceptions, both small: ties at the cut leave open which of the
equally good factors it is, and the floors of our code (and of Kaldi's) hold d and rho at 5e-4 of
the largest eigenvalue. With both taken into account the limit is met to {to_limit:.0e} for every
spectrum.

**With finite minibatches it settles at a noise that is known in advance.** Expected errors that are
derived to first order (`natgrad.optim.steady_state.expected_noise`) agree with what is measured:
the error of F is {results.ratios("factor").text()} times the expected one, and the squared sines
between R's space and the best one {results.ratios("space").text()} times, over two spectra, N from
{min(settings.batch_sizes)} to {max(settings.batch_sizes)} and S from {min(settings.histories):g} to
{max(settings.histories):g}. (In brackets the least and the greatest of these cells, each a mean
of {len(settings.seeds)} seeds.) It is S that counts, and hardly N: F is about as noisy as the
covariance of 2 S samples. (S counts the samples that update F: with the usual period, those of
every fourth minibatch.) What gradients are multiplied by, the smoothed inverse, is off by
{" and ".join(significant(value) for value in inverse)} of its norm at S = {history:g}."""
