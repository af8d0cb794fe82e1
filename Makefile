# Two commands are all the set-up there is: `make demo` and `make test`. Both make .venv when it is missing.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STEPS ?=
PLAN ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types format install clean bench docs pages screenshots wheel

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Heddle and what it needs into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install  ## measure, plan, draw, train, write and compare on this machine: two minutes
	@$(BIN)/heddle demo $(if $(PLAN),--plan $(PLAN)) $(if $(STEPS),--steps $(STEPS))

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

test: lint types  ## lint, types and the whole test suite
	$(BIN)/python -m pytest

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install  ## every benchmark against its named peer, into one table and benchmarks.json; takes hours
	$(BIN)/python -m benchmarks.all

docs: install  ## the manual as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: install  ## the pages of the manual whose numbers are computed
	$(BIN)/python docs/hooks/executed.py

screenshots: install  ## the pictures of the live pages; needs Chromium
	$(BIN)/python docs/hooks/screenshots.py

wheel:  ## dist/ with a wheel that was checked and installed once; needs `build` and `twine`
	rm -rf dist build/wheel
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet dist/*.whl
	cd build && wheel/bin/heddle plan --model gpt2-xl --cluster dgx-h100 --nodes 2 --global-batch 64 --top 1

clean:
	rm -rf $(VENV) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
