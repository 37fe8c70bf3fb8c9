# make demo   the main job: a file over a lossy four-path fabric, by SRD and by kernel TCP (root)
# make test   everything CI runs: format, lint, types, tests (root)
# Both install what they need first; see scripts/setup.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of interpreters, which are twice as fast to start with cached bytecode.
export PYTHONDONTWRITEBYTECODE :=

# Tests wait for other processes half of their time: four workers keep two cores busy.
WORKERS := -n 4 --dist worksteal
# Tests of pure code: they need neither root nor the built project, so that they run while it compiles, on one core.
PURE := tests/devmem tests/srd/proto tests/netns/netem tests/netns/placement tests/netns/inventory
# The tests of what is compiled (setup.py) run twice, interpreted and compiled; those marked `compiled` run compiled only.
COMPILED := tests/srd/proto tests/srd/io tests/srd/sim $(wildcard tests/srd/test_*.py) tests/netns/netem/test_queue.py \
	tests/netns/netem/test_loss_models.py tests/netns/backends/virtual \
	$(shell grep -rl --include="*.py" "mark.compiled" tests)

.PHONY: setup demo test test-pure check format clean

setup:
	@PYTHON="$(PYTHON)" scripts/setup

demo:
	@scripts/require-root "make demo" "builds network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup
	@$(BIN)/python scripts/demo.py $(if $(FILE),--file "$(FILE)") $(DEMO_FLAGS)

test:
	@scripts/require-root "make test" "runs its integration tests in network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup --dependencies chromium:chromium linux.uml:user-mode-linux insmod:kmod
	@$(MAKE) --no-print-directory -j2 setup test-pure
	@$(BIN)/python -m pytest -m "not compiled" $(WORKERS) --cov --cov-append --cov-report=term $(PYTEST_FLAGS) $(PURE:%=--ignore=%)
	@$(BIN)/python scripts/coverage_floor.py
	@echo "the same, compiled (see setup.py):"
	@env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python -m pytest -q -o pythonpath= -m "not sources" $(WORKERS) $(COMPILED)
	@echo "the benches in virtual time, compiled:"
	@env -u PYTHONPATH $(BIN)/python scripts/check_benches.py

test-pure:
	@scripts/check
	@$(BIN)/python -m pytest -m "not compiled" --cov --cov-report= $(PURE)

check: setup
	@scripts/check

format:
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf out build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
