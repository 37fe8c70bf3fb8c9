"""The table of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from netns.errors import LabError
from scripts.benches.cases import (
    blackhole,
    card,
    card_fuzz,
    chaos,
    clean,
    devmem,
    ecmp,
    ecn,
    fair,
    fidelity,
    file,
    hostile,
    incast,
    jitter,
    lab,
    latency,
    long_fat,
    loss,
    messages,
    path,
    peers,
    permutation,
    placement_ring,
    placement_scaling,
    python,
    rate,
    relay,
    secure,
    sizes,
    slow_path,
    streams,
    tail,
    tcp_fidelity,
    torture,
    tunnel,
    unequal,
    virtual,
    wild,
    wild_lab,
)
from scripts.benches.outcome import Round, Wanted
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need
from srd.sim.errors import SimulationError

SEEDS: Final = (1, 2, 3, 4, 5)
ROUNDS: Final = 3
"""Rounds on real hosts: the smallest number with a meaningful median."""
VETH: Final = "veth"


@dataclass(frozen=True, slots=True)
class Request:
    """The user's options; None: the case's default."""

    seed: int | None = None
    seconds: float | None = None
    runs: int | None = None
    packets: int | None = None
    plain: bool = False
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One bench. `measure` yields the rounds; it raises BenchError if no valid measurement is possible."""

    name: str
    summary: str
    fabric: str
    measure: Callable[[Request], Iterator[Round]]
    wanted: tuple[Wanted, ...]
    timed: bool = False
    """Whether `seconds` is the duration of the measurement; otherwise it lasts as long as its messages take."""
    counted: bool = False
    """Whether `runs` is the number of its runs."""
    packeted: bool = False
    """Whether `packets` is the number of packets that it sends, and `plain` whether to a transfer in plain text."""
    seeded: bool = True
    """Whether it draws random numbers that a seed can reproduce."""
    stores: bool = False
    """Whether it stores files in a directory, whose file system matters."""
    needs: tuple[Need, ...] = ()
    """What of others it needs, and for which figures."""


def _virtual(
    name: str, summary: str, measure: Callable[[int, float], Round], wanted: tuple[Wanted, ...], seconds: float = 0.0
) -> Case:
    """Return a case in virtual time, with one round per seed."""

    def rounds(request: Request) -> Iterator[Round]:
        for seed in SEEDS if request.seed is None else (request.seed,):
            try:
                yield measure(seed, request.seconds or seconds)
            except (BenchError, SimulationError) as error:
                raise BenchError(f"seed {seed}: {error}") from None

    return Case(name, summary, "virtual", rounds, wanted, timed=bool(seconds))


class _Module(Protocol):
    """A case on real sockets, as its module defines it."""

    @property
    def WANTED(self) -> tuple[Wanted, ...]: ...  # noqa: N802 - constants
    @property
    def NEEDS(self) -> tuple[Need, ...]: ...  # noqa: N802
    @property
    def SECONDS(self) -> float: ...  # noqa: N802
    def rounds(self, count: int, seconds: float, /) -> Iterator[Round]:
        """Make `count` rounds; `seconds`: per contestant, 0 where it is not the case's choice."""


def _veth(name: str, summary: str, module: _Module, *, fabric: str = VETH) -> Case:
    """Return a case on real sockets in namespaces."""

    def rounds(request: Request) -> Iterator[Round]:
        try:
            yield from module.rounds(request.runs or ROUNDS, request.seconds or module.SECONDS)
        except LabError as error:
            raise BenchError(str(error)) from None

    timed = bool(module.SECONDS)
    return Case(name, summary, fabric, rounds, module.WANTED, timed, counted=True, seeded=False, needs=module.NEEDS)


def _chaos(request: Request) -> Iterator[Round]:
    """Yield one round of many runs, or of a single run if a seed is given."""
    first, runs = (1, request.runs or chaos.RUNS) if request.seed is None else (request.seed, request.runs or 1)
    yield chaos.measure(range(first, first + runs))


def _card_fuzz(request: Request) -> Iterator[Round]:
    """Yield the requested number of runs, each with a seed of its own; a single one if a seed is given."""
    first, runs = (1, request.runs or card_fuzz.RUNS) if request.seed is None else (request.seed, request.runs or 1)
    for seed in range(first, first + runs):
        yield card_fuzz.measure(seed)


def _hostile(request: Request) -> Iterator[Round]:
    """Yield one round with the requested number of packets."""
    seed = SEEDS[0] if request.seed is None else request.seed
    yield hostile.measure(seed, request.packets or hostile.PACKETS, secure=not request.plain)


def _torture(request: Request) -> Iterator[Round]:
    """Yield one round of many scenarios: the requested number, or as many as fit into the time."""
    yield torture.measure(seed=request.seed, seconds=request.seconds or torture.SECONDS, runs=request.runs)


def _file(request: Request) -> Iterator[Round]:
    """Yield the rounds of files on disk, without random numbers."""
    directory = request.directory or file.DIRECTORY
    try:
        yield from file.rounds(request.runs or ROUNDS, directory=directory, seconds=request.seconds or file.SECONDS)
    except (LabError, OSError) as error:
        raise BenchError(str(error)) from None


def _devmem(request: Request) -> Iterator[Round]:
    """Yield numbered rounds, without random numbers."""
    return devmem.rounds(request.seconds or devmem.SECONDS)


def _seeded(measure: Callable[[int], Round], rounds: int) -> Callable[[Request], Iterator[Round]]:
    """Return a case's rounds, one per seed."""

    def each(request: Request) -> Iterator[Round]:
        for seed in SEEDS[:rounds] if request.seed is None else (request.seed,):
            yield measure(seed)

    return each


def _placement(request: Request) -> Iterator[Round]:
    """Yield three rounds on a lab, each with the ECMP hash of its seed, and with the time that an assignment takes."""
    for seed in SEEDS[:3] if request.seed is None else (request.seed,):
        yield Round(seed, {**placement_ring.measure(seed, size=placement_ring.Size()), **placement_scaling.measure()})


_TABLE: Final = (
    _virtual("incast", "48 senders x 2 MB to one port", incast.measure, incast.WANTED),
    _virtual("incast-1000", "1,000 senders x 64 KB to one port", incast.measure_1000, incast.WANTED_1000),
    _virtual("incast-8192", "8,192 senders x 64 KB to one port", incast.measure_8192, incast.WANTED_8192),
    _virtual("permutation", "8 hosts to 8, twice the capacity", permutation.measure, permutation.WANTED),
    _virtual(
        "slow-path", "1 of 8 paths at a tenth of the rate", slow_path.measure, slow_path.WANTED, slow_path.SECONDS
    ),
    _virtual(
        "unequal", "paths of unequal length; clocks that are off", unequal.measure, unequal.WANTED, unequal.SECONDS
    ),
    _virtual("loss", "0.1 to 10 % on all paths", loss.measure, loss.WANTED, loss.SECONDS),
    _virtual("ecn", "links with and without early marks", ecn.measure, ecn.WANTED, ecn.SECONDS),
    _virtual("blackhole", "1, then 3 of 4 spines drop everything", blackhole.measure, blackhole.WANTED),
    _virtual("jitter", "50 ms +- 1 and 10 ms", jitter.measure, jitter.WANTED, jitter.SECONDS),
    _virtual("long-fat", "10 Gbit/s and 100 ms, one peer", long_fat.measure, long_fat.WANTED, long_fat.SECONDS),
    _virtual("wild", "beside TCP, by jitter, WAN and satellite", wild.measure, wild.WANTED),
    _virtual("fair", "2, 8, 32 flows on one bottleneck", fair.measure, fair.WANTED),
    _virtual("messages", "a loss in every tenth of 1,000 messages", messages.measure, messages.WANTED),
    Case("devmem", "region to region, beside copies around TCP", "kernel", _devmem, devmem.WANTED, timed=True),
    Case("chaos", "all kinds of faults, by seed", "virtual", _chaos, chaos.WANTED, counted=True),
    Case(
        "card-fuzz",
        "a hostile program at one device of a card",
        "loopback",
        _card_fuzz,
        card_fuzz.WANTED,
        counted=True,
    ),
    Case(
        "hostile", "malformed and forged packets beside a transfer", "loopback", _hostile, hostile.WANTED, packeted=True
    ),
    Case(
        "torture",
        "real endpoints under random faults and attacks",
        "loopback, kernel and relay",
        _torture,
        torture.WANTED,
        timed=True,
        counted=True,
    ),
    Case(
        "placement",
        "all-reduce by placement; how long placing takes",
        "relay",
        _placement,
        (*placement_ring.WANTED, *placement_scaling.WANTED),
    ),
    Case("relay", "the relay backend: packets a second, lateness", "relay", _seeded(relay.measure, 3), relay.WANTED),
    Case("lab", "time to create and delete a lab, and crashes", "namespaces", _seeded(lab.measure, 1), lab.WANTED),
    Case("ecmp", "256 source ports over 4 spines", "namespaces", _seeded(ecmp.measure, 3), ecmp.WANTED),
    Case(
        "fidelity",
        "the relay against the kernel's netem",
        "relay and kernel",
        _seeded(fidelity.measure, 1),
        fidelity.WANTED,
        needs=fidelity.NEEDS,
    ),
    Case(
        "tcp-fidelity",
        "kernel TCP over the relay and over netem",
        "relay and kernel",
        _seeded(tcp_fidelity.measure, 1),
        tcp_fidelity.WANTED,
        needs=tcp_fidelity.NEEDS,
    ),
    _virtual("virtual", "the virtual backend itself", virtual.measure, virtual.WANTED),
    _veth("clean", "bulk data beside kernel TCP", clean),
    _veth("latency", "ping-pong beside kernel TCP, idle and loaded", latency),
    _veth("sizes", "ping-pong of 1 B to 16 MiB beside kernel TCP", sizes),
    _veth("tail", "64 B beside bulk over four paths, SRD and kernel TCP", tail, fabric="kernel or relay"),
    _veth("wild-lab", "beside iperf3's TCP, by jitter, WAN and satellite", wild_lab, fabric="kernel or relay"),
    _veth("path", "processor time of a small message, beside asyncio's streams", path, fabric="loopback"),
    _veth("rate", "small messages a second, 1 and 100 peers", rate),
    Case(
        "file",
        "a file from the page cache to a disk, beside the line rate",
        VETH,
        _file,
        file.WANTED,
        timed=True,
        counted=True,
        seeded=False,
        stores=True,
    ),
    _veth("streams", "ordered bytes, beside messages and TCP", streams),
    _veth("peers", "1 to 10,000 peers on one endpoint", peers),
    _veth("secure", "encrypted, beside plain text and aioquic", secure),
    _veth(
        "tunnel",
        "unmodified programs through srd tunnel, beside TCP, MPTCP and VPNs",
        tunnel,
        fabric="veth, kernel or relay",
    ),
    _veth("card", "applications on two cards, beside the library in process", card),
    _veth("python", "the same transfer by aioquic", python),
)

CASES: Final = {case.name: case for case in _TABLE}
