"""The changes: each moves one option of the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from natgrad.recipes.reproduce.ablations.settings import Ablations

__all__ = ["BASELINE", "COMBINATIONS", "Variant", "all_variants", "trained_variants"]

BASELINE = "baseline"


@dataclass(frozen=True)
class Variant:
    """One change.

    name: of its measurements, without the seed
    option: what is changed, as tables and figures name it
    usual, value: what it is in the baseline, and here
    table, changed: of `TrainConfig`, and its fields that have another value; nothing where no
        other training is needed
    """

    name: str
    option: str
    usual: str
    value: str
    table: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Of what is said of it."""
        return f"{self.option} {self.value}"

    def apply(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the baseline's tables with this change."""
        if not self.table:
            return dict(tables)
        return {**tables, self.table: replace(tables[self.table], **self.changed)}


# What else can be made of the models of the baseline's own runs.
COMBINATIONS = (
    Variant("combination-last", "final model", "weights per layer", "the last iteration's"),
    Variant("combination-mean", "final model", "weights per layer", "mean of the last n"),
    Variant(
        "combination-each",
        "final model",
        "weights per layer",
        "the same, iterations one by one",
    ),
)


def trained_variants(settings: Ablations) -> list[Variant]:
    """Return the changes that need training of their own, in the order of the table."""
    usual = settings.tables()["optimizer"]
    listed = [
        _optimizer(f"alpha-{alpha:g}", "alpha", f"{usual.alpha:g}", f"{alpha:g}", alpha=alpha)
        for alpha in settings.alphas
    ]
    for rank_in, rank_out in settings.ranks:
        own, value = f"{usual.rank_in} / {usual.rank_out}", f"{rank_in} / {rank_out}"
        name = f"rank-{rank_in}-{rank_out}"
        listed.append(
            _optimizer(name, "rank in / out", own, value, rank_in=rank_in, rank_out=rank_out)
        )
    for period in settings.update_periods:
        own = str(usual.update_period)
        name = f"update-period-{period}"
        listed.append(_optimizer(name, "update period", own, str(period), update_period=period))
    for history in settings.histories:
        own, value = f"{usual.num_samples_history:g}", f"{history:g}"
        listed.append(_optimizer(f"history-{value}", "S", own, value, num_samples_history=history))
    own = f"{usual.max_change_per_sample:g}"
    return [
        *listed,
        _optimizer("max-change-off", "max-change", own, "none", max_change_per_sample=None),
        *_beside_the_optimizer(),
        _optimizer("simple", "method", "online NG", "simple NG", method="simple"),
        _optimizer("sgd", "method", "online NG", "SGD", method="none"),
    ]


def _optimizer(name: str, option: str, usual: str, value: str, **changed: Any) -> Variant:
    return Variant(name, option, usual, value, "optimizer", changed)


def _beside_the_optimizer() -> list[Variant]:
    return [
        Variant(
            "fresh-average", "after initialisation", "best", "average", "outer",
            {"fresh": "average"},
        ),
        Variant(
            "all-layers", "layers", "one by one", "all at once", "network",
            {"initial_num_hidden": None},
        ),
        Variant(
            "output-mix-up", "output", "prior scale", "mix-up", "network", {"output": "mix_up"}
        ),
        Variant("output-plain", "output", "prior scale", "plain", "network", {"output": "plain"}),
    ]  # fmt: skip


def all_variants(settings: Ablations) -> list[Variant]:
    """Return all changes, in the order of the table."""
    *before, simple, sgd = trained_variants(settings)
    return [*before, *COMBINATIONS, simple, sgd]
