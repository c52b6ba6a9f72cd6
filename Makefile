# make demo | test | lint | types | index | wheel | test-lowest | test-newest. The first run makes .venv; later runs reuse it.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

# For test-lowest and test-newest: the oldest and the newest Python that zoo runs on.
OLDEST_PYTHON ?= python3.10
NEWEST_PYTHON ?= python3.13

.PHONY: demo test test-slow test-lowest test-newest wheel lint types index clean

demo: $(READY)
	rm -rf runs/demo
	$(BIN)/zoo retrain --demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

# The quick tests on the lowest release of every dependency that pyproject.toml allows, and on the newest.
test-lowest test-newest: build/uv/bin/uv
	rm -rf build/$@
	build/uv/bin/uv venv --quiet --python $(if $(filter test-lowest,$@),$(OLDEST_PYTHON),$(NEWEST_PYTHON)) build/$@
	build/uv/bin/uv pip install --quiet --python build/$@/bin/python -e '.[dev]' \
	  --resolution $(if $(filter test-lowest,$@),lowest-direct,highest)
	build/uv/bin/uv pip list --quiet --python build/$@/bin/python
	build/$@/bin/python -m pytest -n 2 --dist loadfile

build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

# The built wheel in an environment that has nothing else, run from an empty folder.
wheel: $(READY)
	rm -rf build/wheel build/empty build/there
	mkdir -p build/there
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel >/dev/null
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check build/wheel/*.whl
	cd build/there && ../empty/bin/zoo --help >/dev/null && ../empty/bin/zoo list && \
	  ../empty/bin/python -I $(CURDIR)/.ci/wheel.py

# What zoo list says without importing the networks; after one was added or changed.
index: $(READY)
	$(BIN)/python -c 'from zoo.registry import write_index; write_index()'

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
