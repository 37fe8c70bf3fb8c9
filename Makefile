# make demo        the main job: a file over a lossy four-path fabric, by SRD and by kernel TCP (root)
# make demo-card   two tenants on two emulated EFA cards on that fabric: what is carried, denied, hidden and attested (root)
# make demo-volume an encrypted volume on three servers of a lab, while one is killed and a spine dies (root)
# make demo-governance  two teams on a lab: one lends, the other borrows, a job with priority takes back, the other resumes (root)
# make demo-roce   what PFC does to the flows beside an incast, and what SRD does instead: a table and a picture; no root
# make demo-training  a model trained by torch's DDP on that fabric, over SRD and over gloo, while spines fail (root)
# make quick       format, lint, types, and the tests of what changed: 30 seconds; no root, nothing compiled
# make test        everything CI runs: format, lint, types, tests, gates of weight (root)
# make test-volume a volume by clients of others: libnbd, qemu, fio, a real file system (root)
# make test-torch  torch (200 MB and more) and Dask, and the tests of what they use: torch's own, and ours
# make test-dask   Dask's own tests of comms, which are at GitHub only
# make test-long   all tests, interpreted and compiled, coverage floors, all benches in virtual time, torture (root)
# make manuals     manual pages and shell completion, into .venv/share or PREFIX=/usr/local; no root but what PREFIX wants
# make wheels      a wheel that installs without a compiler on this kind of machine, into dist/; no root
# Each installs what it needs first; see scripts/setup.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
SETUP := PYTHON="$(PYTHON)" scripts/setup

# With cached bytecode pytest collects the tests in less than half of the time, in each of its workers.
export PYTHONDONTWRITEBYTECODE :=

# Tests wait for other processes half of their time: four workers keep two cores busy.
WORKERS := -n 4 --dist worksteal -p tests.time_left
# Tests marked `sources`, found by name: each of pytest's workers would import all others first, for eight seconds.
SOURCES := $(shell grep -rl --include="test_*.py" "mark.sources" tests)
# What runs the installed build, compiled: here, and in the processes that tests start.
INSTALLED := env -u PYTHONPATH PYTHONSAFEPATH=1 $(BIN)/python

PROGRAMS := ip:iproute2 iperf3:iperf3 ethtool:ethtool ping:iputils-ping
# For make test-long: what the examples and the tests marked `long` run.
MORE_PROGRAMS := chromium:chromium groff:groff-base linux.uml:user-mode-linux insmod:kmod openssl:openssl \
	wireguard-go:wireguard-go tshark:tshark curl:curl nginx:nginx-light rsync:rsync ssh:openssh-client sshd:openssh-server \
	redis-server:redis-server redis-benchmark:redis-tools pg_ctlcluster:postgresql mpirun:openmpi-bin openvpn:openvpn

# Clients of block devices, and what fills one, for make test-volume and scripts/bench volume.
VOLUME_PROGRAMS := nbdinfo:libnbd-bin qemu-img:qemu-utils fio:fio nbdkit:nbdkit mkfs.ext4:e2fsprogs

.PHONY: setup demo demo-card demo-training demo-roce demo-governance demo-volume quick test test-volume test-sources check-benches test-torch test-dask test-long check-sources check format manuals wheels clean

setup:
	@$(SETUP) $(PROGRAMS)

demo:
	@scripts/require-root "make demo" "builds network namespaces" "make setup, then srd-lab rootless -- srd compare demo"
	@$(SETUP) --extras cli,lab,report $(PROGRAMS)
	@$(BIN)/srd compare demo --anew $(if $(FILE),--file "$(FILE)") $(DEMO_FLAGS)

demo-card:
	@scripts/require-root "make demo-card" "builds network namespaces"
	@$(SETUP) --extras cli,lab,card $(PROGRAMS)
	@$(BIN)/python scripts/demo card $(DEMO_FLAGS)

demo-volume:
	@scripts/require-root "make demo-volume" "builds network namespaces"
	@$(SETUP) --extras cli,lab,card $(PROGRAMS) $(VOLUME_PROGRAMS)
	@$(BIN)/python scripts/demo volume $(DEMO_FLAGS)

demo-governance:
	@scripts/require-root "make demo-governance" "builds network namespaces"
	@$(SETUP) --extras cli,lab $(PROGRAMS)
	@$(BIN)/python scripts/demo governance

demo-roce:
	@$(SETUP) --extras cli,lab,report
	@mkdir -p out
	@$(BIN)/srd sim roce --plot out/roce.png $(DEMO_FLAGS)

demo-training:
	@scripts/require-root "make demo-training" "builds network namespaces"
	@$(SETUP) --extras cli,lab,report $(PROGRAMS)
	@scripts/setup-torch
	@$(BIN)/python scripts/demo training $(DEMO_FLAGS)

quick:
	@$(SETUP) --dependencies
	@$(BIN)/python -m scripts.quick

test:
	@scripts/require-root "make test" "runs its integration tests in network namespaces"
	@$(SETUP) --dependencies $(PROGRAMS)
	@$(MAKE) --no-print-directory -j2 setup check-sources
	@$(INSTALLED) -m pytest -q -o pythonpath= -m "not sources and not long" $(WORKERS) $(PYTEST_FLAGS)
	@TERM=dumb $(MAKE) --no-print-directory -j2 test-sources check-benches
	@$(INSTALLED) scripts/check_weight.py
	@$(BIN)/python scripts/test_long.py --age

test-volume:
	@scripts/require-root "make test-volume" "mounts a file system on a volume"
	@$(SETUP) --dependencies $(PROGRAMS) $(VOLUME_PROGRAMS)
	@$(BIN)/python -m pytest -q -m volume $(PYTEST_FLAGS) tests/nitro_emu/ebs

# The first waits for other processes most of its time, the second never does. TERM=dumb: both say how far they are, each
# in lines of its own.
test-sources:
	@echo "tests that replace or read sources:"
	@$(BIN)/python -m pytest -q -m "sources and not long" $(WORKERS) $(PYTEST_FLAGS) $(SOURCES)

check-benches:
	@$(INSTALLED) scripts/check_benches.py

# One worker: each test has up to four ranks.
test-torch: setup
	@$(SETUP) --extras dask
	@scripts/setup-torch
	@$(INSTALLED) -m pytest -q -o pythonpath= tests/srd/torch tests/srd/dask $(PYTEST_FLAGS)
	@$(INSTALLED) -m scripts.torch_oracle

test-dask: setup
	@$(SETUP) --extras dask
	@$(INSTALLED) -m scripts.dask_oracle

test-long:
	@scripts/require-root "make test-long" "runs its integration tests in network namespaces"
	@$(SETUP) $(PROGRAMS) $(MORE_PROGRAMS) $(VOLUME_PROGRAMS)
	@$(BIN)/python scripts/test_long.py

check-sources:
	@scripts/check

check: setup check-sources

format:
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

wheels:
	@PYTHON="$(PYTHON)" scripts/wheels

manuals:
	@$(SETUP) --dependencies --extras cli,lab
	@$(BIN)/python -m scripts.manuals $(PREFIX)

clean:
	rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
