# make demo   the main job: a file over a lossy four-path fabric, by SRD and by kernel TCP (root)
# make demo-card   two tenants on two emulated EFA cards on that fabric: what is carried, denied, hidden and attested (root)
# make test   everything CI runs: format, lint, types, tests (root)
# Both install what they need first; see scripts/setup.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin

# With cached bytecode pytest collects the tests in less than half of the time, in each of its workers.
export PYTHONDONTWRITEBYTECODE :=

# Tests wait for other processes half of their time: four workers keep two cores busy.
WORKERS := -n 4 --dist worksteal
# The tests of what scripts/coverage_floor.py checks, alone traced for coverage, which doubles their time. They do not need
# the built project: they begin while it compiles, which takes one core, and take both after that.
PURE := tests/srd/proto tests/srd/secure tests/devmem tests/netns/test_units.py tests/netns/netem tests/netns/topology \
	tests/netns/placement tests/netns/lab/test_plan.py tests/netns/faults/test_schedule.py \
	tests/netns/backends/kernel/test_netem_options.py tests/netns/backends/virtual
# The tests of what is compiled (setup.py) run twice, interpreted and compiled; those marked `compiled`, and the
# simulations with all seeds but their first (tests/conftest.py), run compiled only.
COMPILED := tests/srd/proto tests/srd/secure tests/srd/io tests/srd/sim $(wildcard tests/srd/test_*.py) tests/netns/netem \
	tests/netns/backends/virtual tests/netns/backends/relay tests/netns/backends/test_same_departures.py tests/nitro_emu/device \
	$(shell grep -rl --include="*.py" "mark.compiled" tests)

# What the examples of examples/tunnel run.
PROGRAMS := curl:curl nginx:nginx-light rsync:rsync ssh:openssh-client sshd:openssh-server redis-server:redis-server \
	redis-benchmark:redis-tools pg_ctlcluster:postgresql mpirun:openmpi-bin openvpn:openvpn

.PHONY: setup demo demo-card test test-pure check-sources check format clean

setup:
	@PYTHON="$(PYTHON)" scripts/setup

demo:
	@scripts/require-root "make demo" "builds network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup
	@$(BIN)/srd compare demo --anew $(if $(FILE),--file "$(FILE)") $(DEMO_FLAGS)

demo-card:
	@scripts/require-root "make demo-card" "builds network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup
	@$(BIN)/python scripts/demo_card.py $(DEMO_FLAGS)

test:
	@scripts/require-root "make test" "runs its integration tests in network namespaces"
	@PYTHON="$(PYTHON)" scripts/setup --dependencies chromium:chromium groff:groff-base linux.uml:user-mode-linux insmod:kmod openssl:openssl wireguard-go:wireguard-go tshark:tshark $(PROGRAMS)
	@$(MAKE) --no-print-directory -j3 setup check-sources test-pure
	@$(BIN)/python -m pytest -m "not compiled" $(WORKERS) $(PYTEST_FLAGS) $(PURE:%=--ignore=%)
	@echo "the same, compiled (see setup.py):"
	@env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python -m pytest -q -o pythonpath= -m "not sources" $(WORKERS) $(COMPILED)
	@echo "the benches in virtual time, compiled:"
	@env -u PYTHONPATH $(BIN)/python scripts/check_benches.py

check-sources:
	@scripts/check

test-pure:
	@$(BIN)/python -m pytest -m "not compiled" -n 2 --dist worksteal --cov --cov-report= $(PURE)
	@$(BIN)/python scripts/coverage_floor.py

check: setup check-sources

format:
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean:
	rm -rf out build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
