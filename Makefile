# Two commands are all the set-up there is: `make demo` and `make test`. Both make .venv when it is missing.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STEPS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types check format install clean bench docs

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Heddle and what it needs into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install  ## train a small GPT on Python's own library, then let it write
	@rm -rf runs/demo
	$(BIN)/heddle train examples/tiny.toml --name demo $(if $(STEPS),--set train.steps=$(STEPS))
	$(BIN)/heddle generate runs/demo --prompt "def " --tokens 200

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

test: lint types  ## lint, types and the whole test suite
	$(BIN)/python -m pytest

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install  ## every benchmark prints a JSON line with its ratio to a named peer
	$(BIN)/python benchmarks/single_device.py

docs: install  ## the manual as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
