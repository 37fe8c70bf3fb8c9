# make demo   the main job: a file over a lossy four-path fabric, by SRD and by kernel TCP (root)
# make test   everything CI runs: format, lint, types, tests (root)
# Both install what they need first; see scripts/setup.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin

# Tests that take nothing but a processor (virtual time, plain data) run two at a time. The others use namespaces, sockets
# or other processes, or measure time: those run alone.
PURE_COMPILED := tests/srd/proto tests/devmem/test_pool.py
PURE := $(PURE_COMPILED) tests/srd/qlog tests/netns/placement tests/scripts/benches/chaos tests/scripts/benches/cases/test_figures.py
PAIRWISE := -n 2 --dist worksteal

.PHONY: setup demo test check format clean

setup:
	@PYTHON="$(PYTHON)" scripts/setup

demo:
	@scripts/require-root "make demo" "builds network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup
	@$(BIN)/python scripts/demo.py $(if $(FILE),--file "$(FILE)") $(DEMO_FLAGS)

test:
	@scripts/require-root "make test" "runs its integration tests in network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup chromium:chromium linux.uml:user-mode-linux insmod:kmod
	@scripts/check
	@$(BIN)/python -m pytest $(PAIRWISE) --cov --cov-report= $(PYTEST_FLAGS) $(PURE)
	@$(BIN)/python -m pytest --cov --cov-append --cov-report=term $(PYTEST_FLAGS) $(addprefix --ignore=,$(PURE))
	@$(BIN)/python scripts/coverage_floor.py
	@echo "the same, compiled (see setup.py):"
	@env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python -m pytest -q -o pythonpath= -m "not sources" $(PAIRWISE) $(PURE_COMPILED)
	@env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python -m pytest -q -o pythonpath= -m "not sources" tests/srd/io tests/srd/test_*.py
	@echo "the benches in virtual time, compiled:"
	@env -u PYTHONPATH $(BIN)/python scripts/check_benches.py

check: setup
	@scripts/check

format:
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf out build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
