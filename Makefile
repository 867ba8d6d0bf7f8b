# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# the oldest torch that is tested, the oldest with all features, and the newest; constraints.txt names one between
TORCH_VERSIONS ?= 2.6.0 2.9.1 2.14.1
TORCH_TESTS := $(TORCH_VERSIONS:%=test-torch-%)
# the newest one's CUDA build, which works on simulated GPUs
GPU_PYTHON := .venv-torch-$(lastword $(TORCH_VERSIONS))/bin/python
# those whose types are checked: what few run must not call what is no longer there
BENCHMARKS := $(addprefix benchmarks/,allocator.py attack.py categories.py category_trainings.py consistency.py estimate_accuracy.py estimate_models.py estimate_rehearsed.py \
              estimate_speed.py gpu_check.py harness.py monitor_overhead.py on_simulated_gpu.py paired_overhead.py profiler_overhead.py published_tables.py \
              five_seconds.py installed.py program_data.py program_recipes.py programs.py rehearsal_beside_gpu.py \
              rehearsal_truth.py rehearse_speed.py run_loop.py \
              run_overhead.py sampled_overhead.py spike_sizes.py verdicts.py)

# hundreds of processes that tests start would each compile all of tbmem anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test test-gpu test-torch-versions torch-versions $(TORCH_TESTS) browser lint format bench screenshots clean

demo: $(VENV)/.installed                 ## train a small model under tbmem, see what it shows
	$(BIN)/tbmem demo
	@echo "To use the commands named above: source $(BIN)/activate"

docs: $(VENV)/.installed                 ## the documentation as a site in build/site; needs no network, and opens from the disk
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html"

test: lint browser   ## all checks, the same for people and CI; two at a time with a thread each, a file stays together
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-torch-versions: $(TORCH_TESTS)       ## what depends on torch's version, on others than the one of `make test`

torch-versions:                          ## prints them, for .ci/run
	@echo $(TORCH_VERSIONS)

$(TORCH_TESTS): test-torch-%: .venv-torch-%/.installed
	OMP_NUM_THREADS=1 .venv-torch-$*/bin/python -m pytest -n 2 --dist loadfile \
	    -m torch_versions $$(grep -rl --include='test_*.py' torch_versions tests)

test-gpu: .venv-torch-$(lastword $(TORCH_VERSIONS))/.installed  ## what needs a GPU, on simulated ones: Linux, a C++ compiler, 6 GB for torch
	$(GPU_PYTHON) benchmarks/on_simulated_gpu.py --gpus 2 \
	    $(GPU_PYTHON) -m pytest -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

browser:                                 ## Chromium, for the tests of pages: found, or installed where root may
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	    && { timeout 60 apt-get update -qq; DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends \
	         chromium chromium-driver; } >/dev/null 2>&1; } \
	    || echo "No Chromium here: the tests of pages are skipped." \
	            "To run them: apt-get install chromium chromium-driver"

lint: $(VENV)/.frameworks                  ## style, security and types; of benchmarks too, some of which drive frameworks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/bandit --quiet --recursive tbmem
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy $(BENCHMARKS)

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed                ## the figures of benchmarks/RESULTS.md, measured anew
	$(BIN)/pip install --quiet -c constraints.txt --group bench
	$(BIN)/python benchmarks/monitor_overhead.py
	$(BIN)/python benchmarks/profiler_overhead.py
	$(BIN)/python benchmarks/detector.py --quick
	$(BIN)/python benchmarks/verdicts.py --loops benchmarks/loops/dev
	$(BIN)/python benchmarks/verdicts.py --loops benchmarks/loops/held_out --totals

screenshots: $(VENV)/.installed .venv-torch-$(lastword $(TORCH_VERSIONS))/.installed  ## docs/pictures and others; needs chromium and chromium-driver
	$(BIN)/pip install --quiet -c constraints.txt --group screenshots
	$(GPU_PYTHON) -m pip install --quiet transformers
	$(BIN)/python -m docs.make_screenshots --gpu-python $(GPU_PYTHON)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -c constraints.txt -e . --group dev
	@touch $@

$(VENV)/.frameworks: $(VENV)/.installed  ## what adapters, notebooks and sinks are tested with; their tests skip without it
	$(BIN)/pip install --quiet -c constraints.txt --group frameworks --group notebooks --group loggers
	@touch $@

$(TORCH_VERSIONS:%=.venv-torch-%/.installed): .venv-torch-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	grep -vE '^(torch|sympy)==' constraints.txt > .venv-torch-$*/constraints.txt
	.venv-torch-$*/bin/pip install --quiet -c .venv-torch-$*/constraints.txt "torch==$*" -e . --group torch-versions \
	    || { echo "torch $* cannot be installed here, so its tests have not run" >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) .venv-torch-* runs build *.egg-info .mypy_cache .ruff_cache .pytest_cache
