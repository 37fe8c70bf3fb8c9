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
# The tests of what is compiled (setup.py) run twice, interpreted and compiled; those marked `compiled` run compiled only.
COMPILED := tests/srd/proto tests/srd/io $(wildcard tests/srd/test_*.py) $(shell grep -rl --include="*.py" "mark.compiled" tests)

.PHONY: setup demo test check format clean

setup:
	@PYTHON="$(PYTHON)" scripts/setup

demo:
	@scripts/require-root "make demo" "builds network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup
	@$(BIN)/python scripts/demo.py $(if $(FILE),--file "$(FILE)") $(DEMO_FLAGS)

test:
	@scripts/require-root "make test" "runs its integration tests in network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup --dependencies chromium:chromium linux.uml:user-mode-linux insmod:kmod
	@scripts/check & check=$$!; PYTHON="$(PYTHON)" scripts/setup; built=$$?; wait $$check && exit $$built
	@$(BIN)/python -m pytest -m "not compiled" $(WORKERS) --cov --cov-report=term $(PYTEST_FLAGS)
	@$(BIN)/python scripts/coverage_floor.py
	@echo "the same, compiled (see setup.py):"
	@env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python -m pytest -q -o pythonpath= -m "not sources" $(WORKERS) $(COMPILED)
	@echo "the benches in virtual time, compiled:"
	@env -u PYTHONPATH $(BIN)/python scripts/check_benches.py

check: setup
	@scripts/check

format:
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf out build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
