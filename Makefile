# `make` lists the targets. Everything runs from $(VENV); only making that
# environment uses the network, so later runs work offline.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
MARK ?= not slow

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_ALFWORLD := $(VENV)/.installed-alfworld
# An environment of its own: tunix caps versions of others.
TUNIX_VENV ?= .venv-tunix
TUNIX_PY := $(TUNIX_VENV)/bin/python
INSTALLED_TUNIX := $(TUNIX_VENV)/.installed
PACKAGING := setup.cfg pyproject.toml constraints.txt
PIP_INSTALL := -m pip install -qq --disable-pip-version-check -c constraints.txt

# The wheel is tested from a folder that holds all but the package's source.
WHEEL_DIR := build/wheel-test
WHEEL_PY := $(WHEEL_DIR)/venv/bin/python
REAL_DATA = $(or $(CRBC_REAL_DATA),$(abspath ../shared/data))

# $(call fail,message): print it and stop. A comma would end the message.
fail = { printf '\n%s\n' "$(strip $(1))" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help venv train sweep compare depth-ablation \
  ablations credit-accuracy game24 fuzz-logs bench \
  bench-all bench-credit bench-webshop bench-alfworld alfworld-keys \
  alfworld-check merged-graph bytes llm-plan tunix-tiny test test-slow \
  test-tunix lint docs format wheel-test clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' \
	  $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS='...' is passed on; PYTHON=python3.12 picks the interpreter,"
	@echo "  VENV=path the environment (default .venv)."

venv: $(INSTALLED)  ## install into .venv (once; about a minute, 1.1 GB)

train: $(INSTALLED)  ## train on Sokoban, then print a table
	$(PY) -m experiments.train_sokoban $(ARGS)

sweep: $(INSTALLED)  ## tune every estimator alike (before compare)
	$(PY) -m experiments.sweep $(ARGS)

compare: $(INSTALLED)  ## compare the estimators under one budget
	$(PY) -m experiments.compare $(ARGS)

depth-ablation: $(INSTALLED)  ## credit error and training at every depth
	$(PY) -m experiments.depth_ablation $(ARGS)

ablations: $(INSTALLED)  ## the paper's ablations at laptop scale
	$(PY) -m experiments.ablations $(ARGS)

credit-accuracy: $(INSTALLED)  ## compare credit with exact values
	$(PY) -m experiments.credit_accuracy $(ARGS)

game24: $(INSTALLED)  ## compare credit with truth on GPT-4 rollouts
	$(PY) -m experiments.game24_credit $(ARGS)

merged-graph: $(INSTALLED)  ## draw four rollouts and their merged graph
	$(PY) -m experiments.merged_graph $(ARGS)

bytes: $(INSTALLED)  ## a byte-level language model on text Sokoban
	$(PY) -m experiments.text_games --task sokoban_bytes $(ARGS)

llm-plan: $(INSTALLED)  ## memory of Qwen2.5 by device (ARGS='--topology v5e-8')
	$(PY) -m experiments.train_llm --dry_run $(ARGS)

tunix-tiny: $(INSTALLED_TUNIX)  ## a tiny Qwen2 through tunix, with a control
	$(TUNIX_PY) -m experiments.tunix_tiny $(ARGS)

fuzz-logs: $(INSTALLED)  ## damage 100,000 logs and read them (10 min)
	$(PY) -m experiments.fuzz_logs $(ARGS)

bench: $(INSTALLED)  ## time the Sokoban environment
	$(PY) -m experiments.bench_sokoban $(ARGS)

bench-all: $(INSTALLED)  ## every table of the README (ARGS=--quick: half an hour)
	$(PY) -m crbc_jax bench all $(ARGS)

bench-credit: $(INSTALLED)  ## time step credit against its competitors
	$(PY) -m experiments.bench_credit $(ARGS)

bench-webshop: $(INSTALLED)  ## time WebShop (ARGS='--shop PATH')
	$(PY) -m experiments.bench_webshop $(ARGS)

bench-alfworld: $(INSTALLED)  ## time ALFWorld, beside the real one if installed
	$(PY) -m experiments.bench_alfworld $(ARGS)

alfworld-keys: $(INSTALLED)  ## count how ALFWorld's state keys recur
	$(PY) -m experiments.alfworld_keys $(ARGS)

alfworld-check: $(INSTALLED_ALFWORLD)  ## compare ALFWorld with the real one
	$(PY) -m experiments.alfworld_equivalence $(ARGS)

test: $(INSTALLED)  ## run the tests but the slow ones (ARGS='-k closure')
	@$(PY) -m pytest -n 2 -m "$(MARK)" $(ARGS) || $(call fail,Tests failed. \
	  Run the failed ones alone: make test ARGS='--lf -n 0')

test-slow: $(INSTALLED)  ## run the slow tests
	@$(PY) -m pytest -n 2 -m slow $(ARGS) || $(call fail,Slow tests failed. \
	  Run the failed ones alone: make test-slow ARGS='--lf -n 0')

test-tunix: $(INSTALLED_TUNIX)  ## run the tests that need tunix and torch
	@$(TUNIX_PY) -m pytest -n 1 tests/integrations $(ARGS) || \
	  $(call fail,Tests failed with tunix: see above.)

lint: $(INSTALLED_DEV)  ## check style, layout and types
	@$(PY) -m ruff check . || $(call fail,ruff: 'make format' mends what it \
	  can; mend the rest by hand.)
	@$(PY) -m ruff format --check . || $(call fail,Layout: run 'make format'.)
	@$(PY) -m mypy || $(call fail,mypy: mend the types above.)

format: $(INSTALLED_DEV)  ## mend style and layout in place
	-$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(INSTALLED_DEV)  ## build the API page, check what it refers to
	@$(PY) -m tests.docs.api --out build/docs || $(call fail,Docs: a name in \
	  backticks must exist; mend the docstrings above.)

wheel-test: $(INSTALLED_DEV)  ## build the wheel, test it as installed
	@rm -rf $(WHEEL_DIR)/dist $(WHEEL_DIR)/run && mkdir -p $(WHEEL_DIR)/run
	@$(PY) -m build --no-isolation --outdir $(WHEEL_DIR)/dist . \
	  >$(WHEEL_DIR)/build.log 2>&1 || { cat $(WHEEL_DIR)/build.log; \
	  $(call fail,The wheel did not build: see above.); }
	@test -x $(WHEEL_PY) || { $(PY) -m venv $(WHEEL_DIR)/venv && \
	  echo "Installing into $(WHEEL_DIR)/venv (once; about a minute) ..."; }
	@$(WHEEL_PY) -m pip uninstall -qq -y crbc_jax
	@$(WHEEL_PY) $(PIP_INSTALL) "$$(echo $(WHEEL_DIR)/dist/*.whl)[test]" || \
	  $(call fail,The wheel did not install: see above.)
	@cp -r $(wildcard tests experiments configs colab setup.cfg README.md) \
	  $(WHEEL_DIR)/run
	@cd $(WHEEL_DIR)/run && unset PYTHONPATH && python=../venv/bin/python && \
	  $$python -c "import crbc_jax as c; print('testing', c.__file__); \
	    assert 'site-packages' in c.__file__" && \
	  CRBC_REAL_DATA="$(REAL_DATA)" $$python -m pytest -n 2 -m "$(MARK)" \
	  $(ARGS) || $(call fail,Tests failed on the installed wheel. If 'make \
	  test' passes: does a folder lack __init__.py or setup.cfg a data file?)

clean:  ## remove what was built and cached (.venv stays)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -r {} +

$(INSTALLED): $(PACKAGING)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  $(call fail,crbc_jax needs Python 3.11 or newer; $(PYTHON) says: \
	  $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12)
	@$(PYTHON) -c 'import ensurepip, venv' || $(call fail,$(PYTHON) lacks \
	  the venv module. On Debian or Ubuntu: apt-get install python3-venv)
	@echo "Installing into $(VENV) (once; about a minute, 1.1 GB) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PY) $(PIP_INSTALL) -e '.[test]' || $(call fail,Installing failed: see \
	  above. It needs a package index; offline and installed before? Then \
	  'touch $@' keeps what is there.)
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@echo "Installing the developers' tools ..."
	@$(PY) $(PIP_INSTALL) -e '.[dev]' || $(call fail,Installing failed: see \
	  above. It needs a package index.)
	@touch $@

$(INSTALLED_TUNIX): $(PACKAGING)
	@echo "Installing into $(TUNIX_VENV) (once; four minutes, 2.6 GB) ..."
	@$(PYTHON) -m venv $(TUNIX_VENV)
	@$(TUNIX_PY) -m pip install -qq --disable-pip-version-check \
	  -e '.[test,tunix,llm,llm-test]' || $(call fail,Installing failed: see \
	  above. It needs a package index.)
	@touch $@

$(INSTALLED_ALFWORLD): $(INSTALLED)
	@echo "Installing the real ALFWorld (compiles for about four minutes) ..."
	@$(PY) $(PIP_INSTALL) -e '.[alfworld]' || $(call fail,Installing failed: see \
	  above. It needs a package index and cmake and a C++ compiler.)
	@touch $@
