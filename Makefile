# Targets: demo, test, test-slow, slow, combinations, processes, notebooks, browsers, portability, portability-short, sanitize, lint, bench, results, clean. The environment is made in .venv and used by all of them.
PYTHON ?= python3
BIN := .venv/bin
# CI and these targets install exactly what constraints.txt pins.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Without the cache of bytecode, every command that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow slow combinations processes notebooks browsers portability portability-short sanitize lint bench results clean
.DEFAULT_GOAL := demo

demo: .venv/installed
	$(BIN)/heedful demo

test: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

# make test-slow: all slow checks, one after the other; some hours on two cores.
test-slow: slow combinations processes notebooks browsers portability sanitize

# make slow: the tests that are marked slow (minutes).
slow: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m slow

# make combinations: trains, searches and watches with every combination of parts of attention (hours). SHARE=2/8 tests the second eighth.
SHARE ?= 1/1
combinations: .venv/installed-test
	OMP_NUM_THREADS=1 HEEDFUL_COMBINATIONS=$(SHARE) $(BIN)/python -m pytest -q -n auto tests/test_attention_combinations.py

# make processes: bulk jobs, trainings and servers whose processes are killed, interrupted and resumed (minutes).
processes: .venv/installed-test
	HEEDFUL_PROCESSES=1 $(BIN)/python -m pytest -q -n auto --dist loadfile tests/test_bulk.py tests/test_bulk_ray.py tests/test_text_corpora.py \
		tests/test_processes.py tests/test_processes_failing.py tests/test_serving_workers.py

# make notebooks: the view of a trace in JupyterLab and marimo, which are installed into .venv.
notebooks: .venv/installed-test
	$(PIP) jupyterlab marimo
	$(BIN)/python -m pytest -q tests/test_page_notebooks.py

# make browsers: the page in Firefox and WebKitGTK. apt-get install firefox-esr webkit2gtk-driver xvfb
browsers: .venv/installed-test
	$(PIP) websocket-client
	$(BIN)/python -m pytest -q -rs tests/test_page_other_browsers.py

# The numerical tests under other instruction sets, libraries' paths, threads and seeds (CONTRIBUTING.md).
# make portability [ONLY="SETTING …"]
portability: .venv/installed-test
	$(BIN)/python tests/portability.py $(if $(ONLY),--only $(ONLY))

portability-short: .venv/installed-test
	$(BIN)/python tests/portability.py --short

# The tests of C code, compiled by gcc with its address and undefined-behaviour sanitizers, and FUZZ random
# cases of every function (CONTRIBUTING.md). Memory that was never set is filled with NaN.
# make sanitize [FUZZ=100] [ONLY="tests/test_losses.py …"]
FUZZ ?= 100
SANITIZED := $(patsubst %,tests/test_%.py,fuzz_kernels additive_kernels decoding fused joining kernels_in_pytorch \
	loop_operators losses precision reading recurrent_compiled search_stream short_attention steps)
sanitize: export CC := gcc
sanitize: export HEEDFUL_SANITIZE := address,undefined,float-cast-overflow
sanitize: export HEEDFUL_FUZZ := $(FUZZ)
sanitize: export ASAN_OPTIONS := detect_leaks=0:max_malloc_fill_size=1073741824:malloc_fill_byte=255
sanitize: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
sanitize: .venv/installed-test
	OMP_NUM_THREADS=1 LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest --capture=sys $(or $(ONLY),$(SANITIZED))

lint: .venv/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/python benchmarks/run.py

# The comparisons of benchmarks/results.toml; rerun to resume.
# make results DATA=FOLDER [ONLY="RECIPE …"] [JOBS=2] [THREADS=1] [OUT=runs/results]
JOBS ?= 1
THREADS ?= 1
OUT ?= runs/results
results: .venv/installed
	$(BIN)/python benchmarks/results.py --out "$(OUT)" --jobs $(JOBS) --threads $(THREADS) \
		$(if $(DATA),--data "$(DATA)") $(if $(ONLY),--only $(ONLY))

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch goes first and alone, so that nothing else chooses another build of it.
.venv/torch: constraints.txt | .venv/bin/python
	@echo "Installing PyTorch and heedful into .venv (once; some minutes)"
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	@touch $@

.venv/installed: pyproject.toml .venv/torch
	$(PIP) --editable .
	@touch $@

.venv/installed-test: .venv/installed
	$(PIP) --editable '.[test]'
	@touch $@

.venv/installed-lint: .venv/installed-test
	$(PIP) --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
