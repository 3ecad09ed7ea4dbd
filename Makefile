# Two commands for a new user: `make demo` and `make test`. Both make .venv first and install what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-engines lint clean

demo: $(VENV)/.installed-demo
	$(BIN)/natgrad recipe demo --out demo
	$(BIN)/natgrad demo --out demo

test: lint
	$(BIN)/python -m pytest

# Real Ray, Slurm and GridEngine on this machine: as root, on Debian; installs what they need.
test-engines: $(VENV)/.installed-dev,ray,cluster
	$(BIN)/python -m pytest tests/engines -m cluster

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "natgrad needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d: install one and run make PYTHON=/path/to/python3.11" % v[:2])'
	$(PYTHON) -m venv $(VENV)

# One stamp per extra, so that `make demo` does not wait for the developers' tools.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[$*]'
	@touch $@
