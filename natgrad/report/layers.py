"""What jobs and iterations tell of each layer, over the run."""

from __future__ import annotations

from natgrad.report.history import Event, RunHistory

__all__ = ["limited_shares", "relative_changes", "spectra"]

Values = dict[int, float]  # by iteration


def limited_shares(run: RunHistory) -> dict[str, Values]:
    """Return by layer which share of an iteration's minibatches max-change has limited."""
    shares: dict[str, Values] = {}
    for name in run.layer_names():
        shares[name] = {}
        for iteration, jobs in run.jobs.items():
            entries = [job["layers"][name] for job in jobs if name in (job.get("layers") or {})]
            num_minibatches = sum(entry["num_minibatches"] for entry in entries)
            if num_minibatches:
                num_limited = sum(entry["num_limited"] for entry in entries)
                shares[name][iteration] = num_limited / num_minibatches
    return {name: values for name, values in shares.items() if values}


def relative_changes(run: RunHistory) -> dict[str, Values]:
    """Return by layer by which part of its norm each iteration has changed it."""
    changes: dict[str, Values] = {name: {} for name in run.layer_names()}
    for iteration, event in run.iterations.items():
        for name, change in (event.get("change") or {}).items():
            if change is not None:
                changes[name][iteration] = change
    # What is not trained, as a fixed input transform, never changes.
    return {name: values for name, values in changes.items() if any(values.values())}


def spectra(run: RunHistory, side: str) -> dict[str, dict[int, list[float]]]:
    """Return by layer and iteration what its Fisher factor removes: the means of the jobs used.

    side: "removed_in" (of the layer's inputs) or "removed_out" (of its output derivatives)
    """
    found: dict[str, dict[int, list[float]]] = {}
    for name in run.layer_names():
        by_iteration = {
            iteration: mean
            for iteration, jobs in run.jobs.items()
            if (mean := _mean_spectrum(jobs, name, side)) is not None
        }
        if by_iteration:
            found[name] = by_iteration
    return found


def _mean_spectrum(jobs: list[Event], name: str, side: str) -> list[float] | None:
    all_of_them = [
        entry[side]
        for job in jobs
        if job.get("accepted", True)
        and (entry := (job.get("layers") or {}).get(name))
        and entry.get(side)
        and None not in entry[side]  # not finite: of a job that diverged
    ]
    if not all_of_them:
        return None
    # A job that has hardly begun may have factors of lower rank: those are not averaged.
    rank = max(len(values) for values in all_of_them)
    whole = [values for values in all_of_them if len(values) == rank]
    return [sum(column) / len(whole) for column in zip(*whole, strict=True)]
