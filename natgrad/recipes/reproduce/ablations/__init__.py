"""The paper's options, changed one at a time: what each of them is worth."""
