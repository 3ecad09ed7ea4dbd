"""Experiments that can be repeated: `natgrad reproduce NAME`.

An experiment is a file (or a package, if it is long) here that ends in an `Experiment` of
natgrad.recipes.reproduce.experiment, and a line in natgrad.recipes.reproduce.registry. To add one,
write

- a frozen dataclass of its settings, all with defaults, seeds among them. They are what
  `--set KEY=VALUE` changes, and must say all that the results depend on but the code. If their
  types are those that natgrad.run.config knows, mistakes are named without your help.
- a function from (settings, data) to its measurements. `data` is what `--data` gave, or None.
  A measurement is one thing that can be found out by itself in minutes: one training run, one
  seed, one row of a table. It has a name, the settings that *it* depends on (no others, or it is
  done again in vain), and a function that does it and returns what it found, as JSON takes it.
  It may need others: those are done before it, and what they found is handed to it. It has a
  directory of its own for anything larger, in which it may meet what a killed attempt has left.
  What needs one of natgrad's extras is imported there, not at the top of the file.
- a function from settings and what all measurements found to a `Report`: a title, the answer in
  a few sentences, then Markdown and `Figure`s (lines and axes: the command draws them). It is
  a pure function, runs in a moment, and states numbers with their uncertainty.

What would take more than an hour is better two experiments, of which one goes on from the other
(`after`): it lists its own measurements only, which may need those before; its report is handed
what all have found, and its page counts and dates its own.

The rest is here. In DIR (by default reproduce/NAME, or that of the experiment it goes on from):

    measurements/NAME.json   a measurement that is done: its settings, what it found, when, where,
                             in how many seconds; written whole or not at all
    work/NAME/               what a measurement leaves for itself
    events.jsonl, lock       as in any run
    NAME.md, *.svg           the report

A run that was killed goes on with the first measurement that is not done; one whose settings have
changed is done again, with those that need it, in an empty directory. Code is not among the
settings: when it comes to find something else, change a setting with it, or remove the records.
With `--docs docs`, the report is written to docs/results/ as well, and docs/results.md is put
together from the heads of all reports there: title, question, answer, and figures that come before
the first heading.
"""
