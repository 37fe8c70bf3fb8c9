"""Plays flows by one transport on one fabric; a scenario is what flows there are, and what goes wrong meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import RedProfile, WatchdogProfile
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.flows import Flow, Running
from srd.sim.models.dcqcn import FirmwareConfig
from srd.sim.models.transports import (
    DCTCP_MARK_BYTES_PER_GBPS,
    Dcqcn,
    Irn,
    ModelTransport,
    Roce,
    Tcp,
    firmware_dcqcn,
)
from srd.sim.presets import MICROSECOND_FABRIC
from srd.sim.simulation import Simulation
from srd.sim.transport import Transport
from srd.sim.transports import Srd

CONFIG: Final[ProtocolConfig] = replace(
    MICROSECOND_FABRIC,
    initial_window_packets=16,
    initial_rtt_s=30e-6,
    ack_delay_s=3e-6,
    delay_target_rtts=1.5,
    min_delay_target_s=5e-6,
    max_peers=4096,
)
"""SRD's, for round trips of 11 us instead of 40: the initial window is again the bandwidth-delay product (140 kB), an
ACK is delayed by a quarter of a round trip, and the delay target is about the same time, twenty packets."""
SHARP_MARKING: Final = RedProfile(40_000, 160_000, 0.1)
"""At 40 Gbit/s: between the paper's, which marks early and rarely, and its strawman with one threshold of 40 kB."""
STEPS: Final = 200
"""Samples of a run."""
Sample = tuple[float, dict[str, float]]
"""A time in us after the start, and what was read."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A transport, and the switches it is played on."""

    label: str
    transport: Transport
    switches: ModelTransport
    """Whose switches."""
    watchdog: WatchdogProfile | None = None
    config: ProtocolConfig = CONFIG
    """Settings of SRD's cores."""


def _contender(label: str, transport: ModelTransport) -> Contender:
    return Contender(label, transport, transport)


CONTENDERS: Final[dict[str, Contender]] = {
    "roce": _contender("RoCE, PFC", Roce()),
    "dcqcn": _contender("RoCE, PFC, DCQCN (paper)", Dcqcn()),
    "dcqcn-firmware": _contender("RoCE, PFC, DCQCN (cards)", firmware_dcqcn()),
    "irn": _contender("IRN", Irn()),
    "cubic": _contender("TCP CUBIC", Tcp("cubic")),
    "dctcp": _contender("DCTCP", Tcp("dctcp", mark_bytes_per_gbps=DCTCP_MARK_BYTES_PER_GBPS)),
    "srd": Contender("SRD", Srd(), Tcp("cubic")),
}
"""With published or default settings, but for SRD, whose own were searched for. SRD is played on the switches of CUBIC:
they drop, and do not mark."""


def _searched(transport: ModelTransport) -> Contender:
    return _contender("  searched", transport)


SEARCHED: Final[dict[str, Contender]] = {
    "roce": _searched(Roce(alpha=1.0, timeout_exponent=8)),
    "dcqcn": _searched(Dcqcn(alpha=1.0, marking=SHARP_MARKING)),
    "dcqcn-firmware": _searched(firmware_dcqcn(alpha=1.0, firmware=FirmwareConfig(timer_us=55.0))),
    "irn": _searched(Irn(alpha=1.0)),
    "cubic": _searched(Tcp("cubic", alpha=1.0)),
    "dctcp": _searched(Tcp("dctcp", alpha=1.0, mark_bytes_per_gbps=DCTCP_MARK_BYTES_PER_GBPS)),
    "srd": replace(CONTENDERS["srd"], label="  searched"),
}
"""With what the same search finds for each: `scripts/benches/roce_tuning.py`, docs/roce.md."""
UNSEARCHED: Final[dict[str, Contender]] = {
    **CONTENDERS, "srd": replace(CONTENDERS["srd"], config=replace(MICROSECOND_FABRIC, max_peers=CONFIG.max_peers))
}  # fmt: skip
"""The same kind for all: published or default settings; SRD's are those for round trips of 40 us (presets.py)."""


@dataclass(slots=True)
class Played:
    """What happened."""

    simulation: Simulation
    times_us: list[float]
    """From each flow's start to its last byte; infinite: it did not end."""

    @property
    def ports(self) -> Iterator[EgressPort]:
        """All ports of the fabric."""
        return (port for port in self.simulation.fabric.links.values() if isinstance(port, EgressPort))

    @property
    def pauses(self) -> int:
        """How often a port was paused."""
        return sum(port.pauses for port in self.ports)

    @property
    def dropped(self) -> int:
        """Packets that switches had no room for."""
        return sum(sum(switch.dropped) for switch in self.simulation.fabric.switches.values())

    @property
    def discarded(self) -> int:
        """Packets that the watchdog discarded."""
        return sum(port.discarded for port in self.ports)

    @property
    def unfinished(self) -> int:
        """Flows that did not end."""
        return sum(time == math.inf for time in self.times_us)


@dataclass(slots=True)
class ReadyFabric:
    """A fabric on which a contender is ready to send its flows."""

    simulation: Simulation
    running: Running


def prepare(
    contender: Contender,
    topology: Topology,
    flows: Sequence[Flow],
    *,
    seed: int,
    buffers: Mapping[str, int] | None = None,
) -> ReadyFabric:
    """Return the stage. `buffers`: of switches that have another one."""
    changes: dict[str, Any] = {"watchdog": contender.watchdog, "buffers": buffers or {}}
    profile = replace(contender.switches.switches(topology), **changes)
    simulation = Simulation(topology, config=contender.config, seed=seed, switches=profile)
    contender.transport.prepare(simulation, [(flow.source, flow.destination) for flow in flows])
    return ReadyFabric(simulation, Running(simulation, contender.transport, flows))


def play(stage: ReadyFabric, *, limit_s: float) -> Played:
    """Play the flows until all have ended, or for `limit_s` of virtual time."""
    stage.running.start()
    stage.simulation.run(seconds=limit_s, done=stage.running.is_done)
    times_us = [
        math.inf if started_s is None or ended_s is None else (ended_s - started_s) * 1e6
        for _, started_s, ended_s in stage.running.times_s()
    ]
    return Played(stage.simulation, times_us)


def sample(stage: ReadyFabric, read: Callable[[Simulation], dict[str, float]], *, every_us: float) -> list[Sample]:
    """Read something from now on, STEPS times at most; return the list that will be filled."""
    fabric, samples = stage.simulation.fabric, list[Sample]()

    def take(now_ns: int) -> None:
        samples.append(((now_ns - stage.running.began_ns) / 1000, read(stage.simulation)))
        if len(samples) < STEPS:
            fabric.at(now_ns + round(every_us * 1000), take)

    fabric.at(fabric.now_ns, take)
    return samples
