"""What is told of the changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from natgrad.recipes.reproduce.ablations.figures import alpha_figure, differences_figure
from natgrad.recipes.reproduce.ablations.results import (
    AblationResults,
    Difference,
    When,
    chance_of_passing,
)
from natgrad.recipes.reproduce.ablations.settings import Ablations
from natgrad.recipes.reproduce.ablations.variants import Variant
from natgrad.recipes.reproduce.across_seeds import AcrossSeeds, markdown_table
from natgrad.recipes.reproduce.experiment import Figure, Found, Report

__all__ = ["report"]

# What is told of each change: of which model, which number, and how it is written.
COLUMNS: dict[str, tuple[When, str]] = {
    "training": ("final", "train_objective"),
    "held out": ("final", "valid_objective"),
    "held out, points of frames right": ("final", "valid_accuracy"),
    "training, last iteration": ("last", "train_objective"),
    "held out, last iteration": ("last", "valid_objective"),
}
# By option, what the paper says of it in words, and where.
CLAIMS = {
    "alpha": "4 is suitable under a wide range of circumstances (4.9)",
    "rank in / out": "20 and 80; directions beyond are unlikely to make a difference (B.4)",
    "update period": "4, for speed (B.4)",
    "S": "2000, with no reason to believe that it is very important (B.4)",
    "max-change": "0.075, against instability and divergence (C.3)",
    "after initialisation": "the best job's model, as averaging can degrade it (C.7)",
    "layers": "one by one, rather than pre-training (C.7)",
    "output": "mix-up helped slightly, the scale by prior^-0.25 in its place slightly more (C.5)",
    "final model": "weights per layer, which slightly improve results (C.4)",
    "method": "natural gradient, online rather than simple (4 and appendix B)",
}


def report(settings: Ablations, found: Mapping[str, Found]) -> Report:
    """Tell of all changes."""
    results = AblationResults(settings, found)
    figures: list[str | Figure] = [differences_figure(results)]
    if settings.alphas:
        figures.append(alpha_figure(results))
    return Report(
        "The paper's options, changed one at a time",
        _answer(results),
        [
            figures[0],
            "## All changes\n\n" + _table(results),
            *figures[1:],
            "## What the paper says of them\n\n" + _claims(results),
            "## The runs\n\n" + _runs(results),
        ],
    )


# -- in words ------------------------------------------------------------------------------------


def _answer(results: AblationResults) -> str:
    s, variants = results.settings, results.variants
    training, held_out, right = (results.baseline(*COLUMNS[name]) for name in list(COLUMNS)[:3])
    share = chance_of_passing(len(s.seeds))
    by_chance = share * len(variants)
    return f"""\
With the paper's options the objective is {training.text(_objective)} on training data and
{held_out.text(_objective)} held out, with {right.text(_per_cent)} % of frames right (mean and
range of {len(s.seeds)} seeds). Of {len(variants)} changes, by more than chance makes:

{_moved(results, variants, "training")}
{_moved(results, variants, "held out")}
{_diverged(results, variants)}
More than chance: the mean difference is greater than the range of the seeds' differences, and than
the baseline's range. Of changes that change nothing, up to {100 * share:.0f} % would pass: of all
rows about {by_chance:.1f}.
"""


def _moved(results: AblationResults, variants: Sequence[Variant], column: str) -> str:
    """Say which changes make a number greater, and which less, by more than chance."""
    lines = []
    for sign, word in ((1, "better"), (-1, "worse")):
        moved = [(v, d) for v, d in _differences(results, variants, column) if d.sign == sign]
        moved.sort(key=lambda pair: -sign * _mean(pair[1]))
        listed = "; ".join(f"{v.title} ({_signed(_mean(d))})" for v, d in moved)
        lines.append(f"- {column}, {word}: {listed or 'none'}")
    return "\n".join(lines)


def _diverged(results: AblationResults, variants: Sequence[Variant]) -> str:
    listed = [
        f"{variant.title} ({results.diverged(variant)} of {len(results.settings.seeds)} seeds)"
        for variant in variants
        if results.diverged(variant)
    ]
    return f"- diverged: {'; '.join(listed)}\n" if listed else ""


def _differences(
    results: AblationResults, variants: Sequence[Variant], column: str
) -> list[tuple[Variant, Difference]]:
    when, key = COLUMNS[column]
    return [(variant, results.difference(variant, when, key)) for variant in variants]


def _claims(results: AblationResults) -> str:
    rows = []
    for option, claim in CLAIMS.items():
        variants = [variant for variant in results.variants if variant.option == option]
        if variants:
            told = [_told(results, variants, column) for column in ("training", "held out")]
            rows.append([option, claim, *told])
    head = ["option", "the paper", "training, here", "held out, here"]
    return (
        "Here: changes whose difference is more than chance, which only says something of a small "
        f"network and {results.settings.num_epochs:g} epochs, at learning rates that were not "
        f"tuned again for any of them.\n\n{markdown_table(head, rows)}"
    )


def _told(results: AblationResults, variants: Sequence[Variant], column: str) -> str:
    told = []
    for variant, difference in _differences(results, variants, column):
        if difference.num_diverged:
            told.append(f"{variant.value} diverges")
        elif difference.sign:
            told.append(f"{variant.value}: {_signed(_mean(difference))}")
    return "; ".join(told) or "no more than chance"


# -- in numbers ----------------------------------------------------------------------------------


def _table(results: AblationResults) -> str:
    rows = [["", "*none*", "", "", *_absolute(results), str(results.left_out(None))]]
    for number, variant in enumerate(results.variants, start=1):
        cells = [
            _cell(results, variant, column) if _is_own(variant, column) else ""
            for column in COLUMNS
        ]
        left_out = str(results.left_out(variant)) if variant.table else ""
        rows.append([str(number), variant.option, variant.usual, variant.value, *cells, left_out])
    head = ["", "change", "from", "to", *COLUMNS, "models left out"]
    return f"""\
In the first row what the baseline reached, then differences to it: greater is better. Mean of
{len(results.settings.seeds)} seeds, each against the baseline from the same seed, and in brackets
the least and the greatest; in bold what is more than chance. The first three columns are of the
final model, combined on the training data that the first is measured on (which is why, of ways to
combine, the held-out columns tell), the next two of the last iteration's. A run diverged if no job
of an iteration left anything to go on with, or if it ends below {results.floor:.2f}, where a
network is that has learned nothing.

{markdown_table(head, rows)}
"""


def _is_own(variant: Variant, column: str) -> bool:
    """Return whether there is anything to tell: other ends of the same run have its last model."""
    return bool(variant.table) or COLUMNS[column][0] == "final"


def _absolute(results: AblationResults) -> list[str]:
    cells = []
    for when, key in COLUMNS.values():
        write = _per_cent if key.endswith("accuracy") else _objective
        suffix = " %" if key.endswith("accuracy") else ""
        cells.append(results.baseline(when, key).text(write) + suffix)
    return cells


def _cell(results: AblationResults, variant: Variant, column: str) -> str:
    when, key = COLUMNS[column]
    difference = results.difference(variant, when, key)
    found = difference.across
    if found is None:
        return "diverged"
    write = _points if key.endswith("accuracy") else _signed
    text = found.text(write)
    if difference.num_diverged:
        return f"{text}, {difference.num_diverged} diverged"
    return f"**{text}**" if difference.sign else text


def _runs(results: AblationResults) -> str:
    s, examples = results.settings, results.found["examples"]
    combined = results.found[f"combinations-seed-{s.seeds[0]}"]
    inputs, each = combined["inputs"], combined["last_inputs"]
    lengths = ", ".join(map(str, results.mean_lengths()))
    return f"""\
p-norm layers {s.layers}; {examples["classes"]} classes ({s.examples.classes},
on its speaker-adapted features, +-4 frames); {s.num_epochs:g} epochs of
{examples["samples"]} samples; {s.num_jobs} jobs, K = {s.examples.samples_per_job}; minibatches of
{s.minibatch_size}; effective learning rates {s.initial_effective_lr:g} to
{s.final_effective_lr:g}, the same for all: what wants others is at a disadvantage. Objectives are
measured on {s.examples.train_subset_samples} samples of the training data and
{s.examples.validation_samples} held-out frames, the same from all seeds.

Jobs are short: each has about {s.examples.samples_per_job // s.minibatch_size} minibatches,
learns its Fisher matrices anew, and updates them on the first 10 whatever the update period. With
K = 400 000, as in the paper, the update period and S may matter more, or less.

The final model is made of {len(inputs)} models on the training subset: means over iterations
{inputs[0][0]} to {inputs[-1][-1]}, which are less than an epoch (C.4). "Mean of the last n" is of
the last {lengths} of these, by seed; "one by one" means iterations {each[0]} to {each[-1]}
themselves.
"""


def _mean(difference: Difference) -> float:
    found: AcrossSeeds | None = difference.across
    assert found is not None, "what is more than chance is there"
    return found.mean


def _objective(value: float) -> str:
    return f"{value:.3f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}"


def _per_cent(value: float) -> str:
    return f"{100 * value:.1f}"


def _points(value: float) -> str:
    return f"{100 * value:+.2f}"
