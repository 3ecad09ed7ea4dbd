"""Benchmarks: what natgrad costs and what it gains, each a command, all on one harness.

harness.py          rounds in which methods take turns; a benchmark as a command
table.py            values by method and round; medians, quartiles, ratios, goals
result_file.py      results as JSON; machine.py: the facts that come with them
text.py             results as tables

step.py             what a training step costs
convergence.py      what it gains (optimizers.py, speech_like.py; convergence_report.py, _plot.py)
averaging.py        what averaging costs (whole_iterations.py, driver.py; turns.py)
data.py             what examples on disk cost
decode.py           how fast the decoder is (recipe_run.py, drawn_speech.py: what is decoded)
combination.py      on which data the last models should be combined (spoken_frames.py)
"""
