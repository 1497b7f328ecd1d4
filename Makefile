# Every target builds .venv when it is missing or older than the files that describe it.
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint fix bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml requirements.txt constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("saas-ssl needs Python 3.11 or newer: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

demo: $(STAMP) ## label scikit-learn's digits from 50 given labels
	$(BIN)/saas demo

test: lint ## run the tests and all that lint does
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-slow: $(STAMP) ## run the tests that take minutes
	$(BIN)/pytest -m slow

lint: $(STAMP) ## run ruff, mypy --strict and the contracts between rooms
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(STAMP) ## mend what ruff can mend, and rewrite the code in the house format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## measure the speed of a step and of the projection
	$(BIN)/python benchmarks/step.py

clean: ## remove .venv and caches
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
