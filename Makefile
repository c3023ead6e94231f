# Two commands: `make demo` and `make test`. Each creates .venv and installs what it needs the first time.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

QUICK  := tests/test_house.py tests/test_properties.py tests/trace/test_program.py tests/trace/test_array.py \
          tests/backends/test_cache.py tests/quant/test_walk.py tests/quant/test_masks.py \
          tests/lower/npu/test_interpret.py tests/lower/npu/test_lower_quantized.py \
          tests/kernels/ipu/test_amp_cycles.py tests/lower/ipu/test_plan.py tests/lower/ipu/test_mapping.py \
          tests/lower/pipeline
# The CPU compiler, but for the tests that take longest, and those of its accuracy, which compare with SciPy.
CPU    := tests/kernels/cpu tests/lower/cpu tests/backends/cpu tests/profiling
LEFT   := tests/kernels/cpu/test_math.py tests/kernels/cpu/test_ops.py tests/kernels/cpu/test_linalg.py \
          tests/lower/cpu/rules/test_quant.py tests/lower/cpu/rules/test_pool.py tests/lower/cpu/rules/test_elementwise.py \
          tests/backends/cpu/test_programs.py

# What runs once more in guard mode: calls, donation, loops; and the kernels of every op, where its tests say how.
GUARDED := tests/backends/cpu tests/backends/memory tests/transforms/test_jit.py tests/transforms/test_jit_ways.py \
           tests/transforms/control tests/lower/cpu

# Packages with trained networks, without what they depend on: 56 MB. Their files are read, their code is not run.
READER := "rapidocr-onnxruntime==1.4.4"
MODELS := $(READER) "silero-vad==6.2.3" "magika==1.0.3" "basic-pitch==0.4.0" "pymicro-wakeword==2.5.0" \
          "pymicro-features>=2,<3" "espeakng-loader==0.2.4"
WITHOUT := no networks of packages: their tests are skipped

# Processes find compiled modules, whatever the machine says of writing them: half of the time of one that runs shortly.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests test-quick guarded fuzz lint bench bars docs site clean

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo: $(VENV)/created pyproject.toml
	$(PIP) -e ".[xla,tpu,demo,quant,npu]"
	$(PIP) --no-deps $(READER) || echo "$(WITHOUT)"
	@touch $@

$(VENV)/docs: $(VENV)/created pyproject.toml
	$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/test: $(VENV)/created pyproject.toml
	$(PIP) --no-compile -e ".[xla,demo,quant,npu,tpu,docs,test]"
	$(PIP) --no-compile --no-deps $(MODELS) || echo "$(WITHOUT)"
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true  # pip does it in one process
	@touch $@ $(VENV)/demo

$(VENV)-core/quick: pyproject.toml
	$(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/python -m pip install --quiet --disable-pip-version-check -e . pytest hypothesis
	@touch $@

demo: $(VENV)/demo
	$(BIN)/python -m nxjax.demo

# Side by side: the type checker has one thread, and tests that wait leave it time.
test: $(VENV)/test
	$(MAKE) --no-print-directory --jobs=2 lint fuzz tests
	$(MAKE) --no-print-directory guarded

tests: $(VENV)/test
	$(BIN)/python -m pytest -n auto --dist worksteal

# Core dependencies only: no jaxlib, no JAX, nothing to compare with.
test-quick: $(VENV)-core/quick
	$(VENV)-core/bin/python -m pytest $(QUICK) $(CPU) $(LEFT:%=--ignore=%)

# Once more with forbidden pages beside all memory, or with what is dead in the arena overwritten.
guarded: $(VENV)/test
	NXJAX_GUARD=end $(BIN)/python -m pytest -n auto -m "not unguarded" $(GUARDED)

# Random programs from a fresh seed, which it prints: `--seed` does them again.
fuzz: $(VENV)/test
	$(BIN)/python -m nxjax fuzz --what programs --seconds 20

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(VENV)/test
	$(BIN)/python -m benchmarks

bars: $(VENV)/test
	$(BIN)/python -m benchmarks bars

docs: $(VENV)/test
	$(BIN)/python docs/generate_ops.py
	$(BIN)/python docs/generate_stubs.py
	$(BIN)/python docs/generate_lines.py

# The documentation as a site, strictly: docs/_build/html/index.html opens in a browser, its search needs no server.
site: $(VENV)/docs
	$(BIN)/python -m sphinx -W --keep-going -E -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(VENV)-core build dist docs/_build docs/reference *.egg-info digits.png digits_hybrid.svg
