# `make reproduce` does the main job, `make test` runs every check. Both set up .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help reproduce test lint types tests clean

help:
	@echo "make reproduce   set up, run every experiment at full size, save the pictures under report/"
	@echo "make test        set up, then lint, type checks and tests"
	@echo "make clean       remove .venv and everything generated"

reproduce: $(VENV)/.ready
	$(BIN)/python -m anchored.experiments.first_look --out report
	$(BIN)/python -m anchored.experiments.figure_1 --out report
	$(BIN)/python -m anchored.experiments.figure_2 --out report
	$(BIN)/python -m anchored.experiments.distance_per_second --out report
	$(BIN)/python -m anchored.experiments.figures_3_to_12 --out report
	$(BIN)/python -m anchored.experiments.figure_8 --out report
	$(BIN)/python -m anchored.experiments.theorem --out report
	$(BIN)/python -m anchored.experiments.certificates --out report
	$(BIN)/python -m anchored.experiments.convergence --out report

test: lint types tests

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

tests: $(VENV)/.ready
	$(BIN)/pytest -n 2 --dist worksteal

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) report build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
