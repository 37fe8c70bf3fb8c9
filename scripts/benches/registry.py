"""The table of all cases: those in virtual time (scenarios.py), and those on real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from scripts.benches import campaign
from scripts.benches.case import Case, CaseOptions
from scripts.benches.cases import (
    card,
    card_fuzz,
    clean,
    dask,
    devmem,
    ecmp,
    fidelity,
    file,
    governance,
    hostile,
    lab,
    latency,
    path,
    peers,
    placement_ring,
    placement_scaling,
    python,
    rate,
    relay,
    scale,
    secure,
    sizes,
    streams,
    tail,
    tcp_fidelity,
    torch,
    torture,
    tunnel,
    volume,
    wild_lab,
)
from scripts.benches.outcome import Round, Wanted
from scripts.benches.scenarios import SEEDS, VIRTUAL
from scripts.harness.needs import Need

ROUNDS: Final = 3
"""Rounds on real hosts: the smallest number with a meaningful median."""


class _Module(Protocol):
    """A case on real sockets, as its module defines it."""

    @property
    def WANTED(self) -> tuple[Wanted, ...]: ...  # noqa: N802 - constants
    @property
    def NEEDS(self) -> tuple[Need, ...]: ...  # noqa: N802
    @property
    def SECONDS(self) -> float: ...  # noqa: N802
    def measure(self, number: int, seconds: float, /) -> Round:
        """Make a round, the first of which is 1; `seconds`: per contestant, 0 where it is not the case's choice."""


def _asked(request: CaseOptions) -> int:
    return request.runs or ROUNDS


def _hosts(name: str, summary: str, module: _Module, *, fabric: str = "veth") -> Case:
    """Return a case on real sockets, whose rounds do not depend on random numbers."""
    options = frozenset({"runs", "seconds"} if module.SECONDS else {"runs"})

    def rounds(request: CaseOptions) -> Iterator[Round]:
        for number in range(1, _asked(request) + 1):
            yield module.measure(number, request.seconds or module.SECONDS)

    return Case(name, summary, fabric, rounds, module.WANTED, options, module.NEEDS, _asked)


def _seeded(
    name: str,
    summary: str,
    fabric: str,
    measure: Callable[[int], Round],
    wanted: tuple[Wanted, ...],
    *,
    rounds: int = 1,
    needs: tuple[Need, ...] = (),
) -> Case:
    def seeds(request: CaseOptions) -> Sequence[int]:
        return SEEDS[:rounds] if request.seed is None else (request.seed,)

    def each(request: CaseOptions) -> Iterator[Round]:
        yield from map(measure, seeds(request))

    return Case(name, summary, fabric, each, wanted, frozenset({"seed"}), needs, lambda request: len(seeds(request)))


def _placement(seed: int) -> Round:
    """Measure on a lab with the ECMP hash of this seed, and the time that an assignment takes."""
    return Round(seed, {**placement_ring.measure(seed, size=placement_ring.RingSize()), **placement_scaling.measure()})


_TABLE: Final = (
    *VIRTUAL,
    _hosts("devmem", "region to region, beside copies around TCP", devmem, fabric="kernel"),
    Case("card-fuzz", "a hostile program at one device of a card",
         "loopback", card_fuzz.rounds, card_fuzz.WANTED, frozenset({"seed", "runs"}),
         planned=partial(campaign.planned, runs=card_fuzz.RUNS)),
    Case("hostile", "malformed and forged packets beside a transfer",
         "loopback", hostile.rounds, hostile.WANTED, frozenset({"seed", "packets", "plain"})),
    Case("torture", "real endpoints under random faults and attacks",
         "loopback, kernel and relay", torture.rounds, torture.WANTED, frozenset({"seed", "seconds", "runs"})),
    Case("file", "a file from the page cache to a disk, beside the line rate",
         "veth", file.rounds, file.WANTED, frozenset({"seconds", "runs", "directory"}), planned=_asked),
    Case("scale", "1,024 hosts in three tiers, 10,000,000 packet hops (or --packets) by two processes",
         "two simulations", scale.rounds, scale.WANTED, frozenset({"seed", "packets"})),
    _seeded("placement", "all-reduce by placement; how long placing takes", "relay", _placement,
            (*placement_ring.WANTED, *placement_scaling.WANTED), rounds=3),
    _seeded("governance", "queues: Kueue's facts, a cycle, 10,000 jobs in virtual time", "none",
            lambda seed: Round(seed, governance.measure(seed)), governance.WANTED),
    _seeded("relay", "the relay backend: packets a second, lateness", "relay", relay.measure, relay.WANTED, rounds=3),
    _seeded("lab", "time to create and delete a lab, and crashes", "namespaces", lab.measure, lab.WANTED),
    _seeded("ecmp", "256 source ports over 4 spines", "namespaces", ecmp.measure, ecmp.WANTED, rounds=3),
    _seeded("fidelity", "the relay against the kernel's netem", "relay and kernel", fidelity.measure,
            fidelity.WANTED, needs=fidelity.NEEDS),
    _seeded("tcp-fidelity", "kernel TCP over the relay and over netem", "relay and kernel", tcp_fidelity.measure,
            tcp_fidelity.WANTED, needs=tcp_fidelity.NEEDS),
    _hosts("clean", "bulk data beside kernel TCP", clean),
    _hosts("latency", "ping-pong beside kernel TCP, idle and loaded", latency),
    _hosts("sizes", "ping-pong of 1 B to 16 MiB beside kernel TCP", sizes),
    _hosts("tail", "64 B beside bulk over four paths, SRD and kernel TCP", tail, fabric="kernel or relay"),
    _hosts("wild-lab", "beside iperf3's TCP, by jitter, WAN and satellite", wild_lab, fabric="kernel or relay"),
    _hosts("path", "processor time of a small message, beside asyncio's streams", path, fabric="loopback"),
    _hosts("rate", "small messages a second, 1 and 100 peers", rate),
    _hosts("streams", "ordered bytes, beside messages and TCP", streams),
    _hosts("peers", "1 to 10,000 peers on one endpoint", peers),
    _hosts("secure", "encrypted, beside plain text and aioquic", secure),
    _hosts("tunnel", "unmodified programs through srd tunnel, beside TCP, MPTCP and VPNs", tunnel,
           fabric="veth, kernel or relay"),
    _hosts("card", "applications on two cards, beside the library in process", card),
    Case("volume", "a block device on three servers, beside TCP and nbdkit",
         "namespaces, kernel or relay", volume.rounds, volume.WANTED, frozenset({"seconds", "runs", "directory"}),
         volume.NEEDS, _asked),
    _hosts("torch", "all-reduces of torch.distributed, beside gloo", torch, fabric="veth and relay"),
    _hosts("dask", "an array rechunk and a table shuffle with 1 % loss, beside tcp://", dask, fabric="kernel or relay"),
    _hosts("python", "the same transfer by aioquic", python),
)  # fmt: skip

CASES: Final = {case.name: case for case in _TABLE}
