# `make help` lists the targets. Each makes and reuses .venv by itself.

PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
INSTALLED := .venv/.stamp
WARMED := .venv/.warm
LOCK := requirements-dev.lock
# Oracles and contracts of the core; processes, learners and random templates are for `make test`.
QUICK := tests/contracts $(addprefix tests/unit/,data engine inference io leaves models report structure)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv lock demo tables check test test-gpu test-kernels lint docs bench bench-gpu clean

help:
	@echo 'make venv    environment in .venv with the library and its tools; compiles the kernels once'
	@echo 'make lock    renew $(LOCK): the newest versions that pyproject.toml allows'
	@echo 'make demo    learn from recordings with gaps, ask, and look: text here, a page and pictures in out/demo'
	@echo 'make tables  the tables of the paper, in out/experiments: hours, or minutes with TABLES=--quick'
	@echo 'make check   contracts and unit tests of the core, in a minute and a half'
	@echo 'make test    everything that must hold: lint, pytest, documentation'
	@echo 'make lint    ruff, mypy, import-linter'
	@echo 'make docs    documentation in docs/_build/html, warnings are errors'
	@echo 'make bench   measure against hmmlearn, pomegranate and dynamax'
	@echo 'make test-gpu   the contract of the engines and the extreme cases on the GPU of this machine'
	@echo 'make test-kernels  all of these with the kernels on the processor, in several orders of threads: needs g++'
	@echo 'make bench-gpu  measure the GPU engine against dynamax, JAX, PyTorch and PyJuice on the GPU of this machine'
	@echo 'make clean   removes what was built, keeps .venv'
	@echo
	@echo 'PYTHON=python3.12 chooses the interpreter of a new .venv, WORKERS=4 the processes of pytest.'

# uv takes a fifth of the time of pip, which knows of other indexes.
pip = $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes
$(INSTALLED): pyproject.toml $(LOCK)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo 'dspn needs Python 3.11 or later; choose one with make PYTHON=python3.12' >&2; \
	        exit 1; }; \
	    $(PYTHON) -m venv .venv; }
	@echo 'Installing dspn and its tools into .venv'
	@awk '/^uv==/, !/\\$$/' $(LOCK) | $(pip) -r /dev/stdin
	@$(BIN)/python -m uv pip install -q --python $(BIN)/python --require-hashes -r $(LOCK) \
	    || $(pip) -r $(LOCK)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Numba keeps compiled kernels next to their source and compiles again after an edit.
$(WARMED): $(INSTALLED) $(wildcard src/dspn/engine/cpu/*.py src/dspn/engine/cpu/*/*.py)
	@if [ -f src/dspn/engine/cpu/warm.py ]; then \
	    echo 'Compiling the kernels'; $(BIN)/python -m dspn.engine.cpu.warm; fi
	@touch $@

venv: $(WARMED)

# For every Python and system at once; uv writes no address of an index unless told to.
lock: $(INSTALLED)
	@$(BIN)/python -m uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-annotate --upgrade --custom-compile-command 'make lock' -qo $(LOCK)

demo: $(WARMED)
	@$(BIN)/python -m dspn.demo

tables: $(WARMED)
	@$(BIN)/python -m experiments all $(TABLES)

define lint
$(BIN)/python -m ruff check .
$(BIN)/python -m ruff format --check .
$(BIN)/python -m mypy --strict src experiments
$(BIN)/lint-imports --no-cache --no-logo
endef

# -E reads every page afresh: Sphinx does not repeat the warnings of a page it has kept.
define documentation
$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
endef

# The tests of a file share what they have computed, so that one worker runs all of them.
pytest = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

define newline


endef

# Runs every line of its argument, then fails if one of them failed.
run_all = @failed=0; $(subst $(newline), || failed=1; ,$(1)) || failed=1; exit $$failed

lint: $(INSTALLED)
	$(call run_all,$(lint))

docs: $(INSTALLED)
	@$(documentation)
	@echo 'Documentation: docs/_build/html/index.html'

# Lint and documentation take the time that the tests leave idle, and a tenth of the rest, so that
# they do not run alone at the end. A line with $(MAKE) itself would run the tests with `make -n` too.
SELF = $(MAKE)
test: $(WARMED)
	@nice -n 10 $(SELF) --no-print-directory --keep-going -j 2 lint docs & others=$$!; \
	trap "kill $$others" INT TERM; $(pytest); tests=$$?; wait $$others && exit $$tests

check: $(WARMED)
	$(call run_all,$(BIN)/python -m ruff check .$(newline)$(BIN)/lint-imports --no-cache --no-logo$(newline)$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m 'not slow' $(QUICK))

bench: $(WARMED)
	@$(BIN)/python -m benchmarks.run $(BENCH)

# A machine with a GPU has its own CuPy, which .venv knows nothing of; SLOW= leaves nothing out.
GPU_PYTHON ?= python3
SLOW ?= -m 'not slow'
test-gpu:
	@PYTHONPATH=src $(GPU_PYTHON) -m pytest -q -p no:cacheprovider $(SLOW) -k 'not numpy' tests/contracts/test_gpu_engine.py

test-kernels: $(INSTALLED)
	@DSPN_KERNELS=all $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -k kernels tests/contracts/test_gpu_engine.py

bench-gpu:
	@PYTHONPATH=src $(GPU_PYTHON) -m benchmarks.gpu $(BENCH)

clean:
	rm -rf docs/_build docs/gallery docs/sg_execution_times.rst build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src experiments tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f $(WARMED)
