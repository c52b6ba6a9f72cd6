# make demo | test | lint | types. The first run makes .venv; later runs reuse it.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test test-slow lint types clean

demo: $(READY)
	rm -rf runs/demo
	$(BIN)/zoo retrain --demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; ok = (3, 10) <= sys.version_info < (3, 14); sys.exit(0 if ok else "zoo needs Python 3.10 to 3.13, but $(PYTHON) is " + sys.version.split()[0] + "; run make PYTHON=python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
