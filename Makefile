# `make reproduce` does the main job, `make test` runs every check. Both set up .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help reproduce test lint types tests test-sb3 test-ray faults docs gallery clean

help:
	@echo "make reproduce   set up, rebuild every figure of the paper at full size into report/index.html"
	@echo "make test        set up, then lint, type checks and tests"
	@echo "make test-sb3    set up another environment with Stable-Baselines3, and test the agent with it"
	@echo "make test-ray    set up another environment with Ray, and test its workers"
	@echo "make faults      damage files, kill runs, fill the disk and the like on purpose: is every promise kept? an hour"
	@echo "make docs        build the documentation into site/; fetches nothing, and a warning is an error"
	@echo "make gallery     execute the notebooks of the gallery again, and keep what they show"
	@echo "make clean       remove .venv and everything generated"

reproduce: $(VENV)/.can-reproduce
	$(BIN)/anchored reproduce --out report

test: lint types tests

lint: $(VENV)/.can-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.can-test
	$(BIN)/mypy

tests: $(VENV)/.can-test
	$(BIN)/pytest -n 2 --dist worksteal

test-sb3: $(VENV)-sb3/.can-test
	$(VENV)-sb3/bin/pytest tests/rl/test_sb3_interface.py

test-ray: $(VENV)-ray/.can-test
	$(VENV)-ray/bin/pytest tests/inference/test_ray.py

faults: $(VENV)/.can-test
	$(BIN)/python benchmarks/faults

docs: $(VENV)/.can-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gallery: $(VENV)/.can-test
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace docs/gallery/*.ipynb

# Each command installs only what it needs.
$(VENV)/.can-reproduce: EXTRAS := plot,compare
$(VENV)/.can-test: EXTRAS := dev
$(VENV)/.can-reproduce $(VENV)/.can-test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

$(VENV)-sb3/.can-test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-sb3
	$(VENV)-sb3/bin/pip install --quiet --editable '.[rl]' pytest stable-baselines3 tensorboard
	touch $@

$(VENV)-ray/.can-test: pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/pip install --quiet --editable . pytest ray
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-sb3 $(VENV)-ray report site build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .grimp_cache .hypothesis
