# Every command sets up what it needs: a fresh machine with Python 3.11 and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test lint bench bench-ridge bench-engines bench-streaming bench-peers bench-scaling audit fuzz docs clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

demo: install
	$(BIN)/tailguard demo

test: install lint
	$(BIN)/python -m pytest -n 2 -q

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/gradient_step.py
	$(BIN)/python benchmarks/startup.py

bench-ridge: install
	$(BIN)/python benchmarks/paper_ridge.py

bench-engines: install
	$(BIN)/python benchmarks/engines.py

bench-streaming: install
	$(BIN)/python benchmarks/streaming.py

# Accuracy and time against peers, each in an environment of its own: about 20 minutes on 2 cores. Writes docs/peers.md.
bench-peers: install build/peers/diffprivlib/bin/python build/peers/opacus/bin/python
	$(BIN)/python benchmarks/compare.py --accuracy --time --workers 2

build/peers/%/bin/python:
	$(BIN)/python benchmarks/peers.py $*

# Time and memory from a thousand to a hundred million rows and 5 to 1000 columns. Writes docs/peers.md.
bench-scaling: install
	$(BIN)/python benchmarks/scaling.py

# Everything that is shipped against its claim, and every planted defect: 10 to 20 minutes on 2 cores of their own.
audit: install
	$(BIN)/python benchmarks/audit.py

# New examples every time; a failure says how to repeat it.
fuzz: install
	FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_TARGET=$(FUZZ_TARGET) FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python tests/fuzzing.py

# Pages, README and the docstrings as a site; a warning, such as a link to nowhere, is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -c docs/site -d build/doctrees . build/docs
	@echo "build/docs/index.html is the front page."

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build demo-output audit-output reproduce-output
