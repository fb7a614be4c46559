# The two commands are `make demo` and `make test`; everything else serves them. Only Python 3.11 with venv is needed.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

# Byte code is kept whatever the shell says: without it each of the many processes compiles some 2,000 files again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-thorough test-slow fuzz lint docs bench rates results lock ui clean mutants
.DEFAULT_GOAL := demo

demo: $(READY)  ## Place real models by every method and show who wins
	$(BIN)/placewright run sweeps/quickstart.yaml

test: $(READY)  ## The fast tests
	$(BIN)/pytest -n 2 --dist loadgroup

test-thorough: $(READY)  ## The tests that take seconds each; CI runs them after the fast ones
	$(BIN)/pytest -m thorough -n 2 --dist loadgroup

test-slow: $(READY)  ## The tests that take minutes, and other examples than ever before for those that draw them
	$(BIN)/pytest -m 'slow or hypothesis' --hypothesis-profile explore

fuzz: $(READY)  ## Malformed and hostile input; other draws by: make fuzz FUZZ='--seed 3 --count 5000'
	$(BIN)/python -m tests.fuzz $(FUZZ)

mutants: $(READY)  ## Break the core in many small ways; fails if its tests do not notice (MODULES= chooses)
	$(BIN)/python -m tests.mutation $(MODULES)

lint: $(READY)  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## Build the documentation into site/, for a browser without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)  ## Measure speed; prints the figures and writes them to docs/results/speed.md
	$(BIN)/python -m tests.bench

rates: $(READY)  ## Measure every method anew, for the times that plans give where nothing has run yet
	$(BIN)/python -m orchestration.commands.planning.reference

results: $(READY)  ## Make the tables of RESULTS.md and docs/results/ from results/; a finished sweep is recorded by: make results SWEEP=FOLDER
	$(BIN)/python -m orchestration.records $(SWEEP)

lock: $(READY)  ## Write the image's lock files anew, after a change of constraints.txt
	$(BIN)/python infra/locks/make.py

ui: $(READY)  ## Open the MLflow UI on what ran here
	$(BIN)/placewright ui

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv build *.egg-info
