# `make` lists the targets. Everything runs in .venv.

PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo
ROWS := learned full none

# Where it is set, every process would compile torch and lightning anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format bench docs release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.installed ## make .venv and install the package with everything that development needs

.venv/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile -e '.[dev]' # what is imported is compiled then: a minute less
	touch $@

demo: install ## train learned, full and none sharing on small built-in images; print one table
	rm -rf $(DEMO)
	for name in $(ROWS); do \
	    echo; echo "== $$name sharing =="; \
	    OMP_NUM_THREADS=1 $(BIN)/lws fit --config configs/demo/$$name.yaml --trainer.default_root_dir $(DEMO)/$$name || exit 1; \
	done
	@echo
	@$(BIN)/lws report $(DEMO)
	@echo
	@echo "Pictures of the sharing:"
	@find $(DEMO) -name '*.png' | sort | sed 's/^/  /'
	@echo "TensorBoard logs:"
	@echo "  $(BIN)/tensorboard --logdir $(DEMO)"

test: lint ## lint, types, and all tests that are not slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install ## let ruff format and repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## time a training step against a plain loop, a fixed assignment and its arithmetic; predict cards
	OMP_NUM_THREADS=2 $(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.roofline

docs: install ## build the documentation into site/
	$(BIN)/python -m pip install -q -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

release-check: install docs ## slow tests and the documentation; then build the wheel and use it in an empty environment
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow
	OMP_NUM_THREADS=1 LWS_EXAMPLES=100 $(BIN)/python -m pytest -n 2 tests/sharing
	rm -rf dist
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .
	set -e; \
	wheel=$$(ls "$(CURDIR)"/dist/*.whl); \
	folder=$$(mktemp -d); \
	trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip install "$$wheel[digits]"; \
	cd "$$folder"; \
	configs=$$(venv/bin/python -c 'import lws_lightning; print(lws_lightning.__path__[0])')/configs; \
	for name in $(ROWS); do \
	    venv/bin/lws fit --config "$$configs/quickstart/$$name.yaml" --trainer.max_steps 20 \
	        --trainer.val_check_interval 10 --trainer.default_root_dir "runs/$$name"; \
	done; \
	venv/bin/lws report runs
