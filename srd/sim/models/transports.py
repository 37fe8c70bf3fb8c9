"""The models as transports of experiments: what is on the wire, and the switches that each is meant for.

All have the same switches: the same memory, the same links. RoCE's pause (class LOSSLESS, whose headroom takes a part
of the memory); those of the others drop. DCQCN's and DCTCP's mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.lossless.profile import LOSSLESS, LOSSY, ClassProfile, RedProfile, SwitchProfile
from netns.backends.virtual.virtual_link import VirtualLink
from netns.netem.changes import effective
from netns.topology.model import ETHERNET_HEADER_BYTES, Topology
from srd.proto.config import ProtocolConfig
from srd.sim.models.controllers import CONTROLLERS, TcpController
from srd.sim.models.dcqcn import (
    FIRMWARE_BPS,
    PAPER_BPS,
    DcqcnConfig,
    FirmwareConfig,
    Notifications,
)
from srd.sim.models.flow import NS_PER_S, FlowRate, FlowReceiver, FlowSender
from srd.sim.models.go_back_n import TIMEOUT_EXPONENT, GoBackNReceiver, GoBackNSender
from srd.sim.models.irn import RTO_HIGH_NS, RTO_LOW_NS, IrnSender
from srd.sim.models.nic import Framing, Nic, NicFlow
from srd.sim.models.tcp import ENDLESS, MIN_RTO_S, TcpFlowSender
from srd.sim.simulation import Simulation
from srd.sim.transport import Done, Transport

ROCE_MTUS: Final = (4096, 2048, 1024, 512, 256)
"""InfiniBand's path MTUs: of payload."""
IP_UDP_BTH_BYTES: Final = 40
ICRC_BYTES: Final = 4
AETH_BYTES: Final = 4
RETH_BYTES: Final = 16
"""In IRN (5.3.1) each packet has it, so that it can be placed; in RoCE only the first, which is left out here."""
TCP_IP_BYTES: Final = 52
"""IPv4, TCP and its timestamps."""
LOSSLESS_ALPHA: Final = 1 / 8
"""SONiC's dynamic_th -3 for lossless groups; HPCC's simulator has the same."""
LOSSY_ALPHA: Final = LOSSLESS_ALPHA
"""Of a queue: so all transports meet the same threshold."""
DCTCP_MARK_BYTES_PER_GBPS: Final = 3000
"""30 kB at 10 Gbit/s, as in the runs of HPCC (SIGCOMM 2019); RFC 8257 wants more than a seventh of the round trip."""
PAPER_MARKING: Final = RedProfile(5_000, 200_000, 0.01)
"""Kmin, Kmax and Pmax of the paper (section 5.2), at 40 Gbit/s; the two lengths are scaled with the rate."""
FIRMWARE_MARKING: Final = RedProfile(100_000, 400_000, 0.2)
"""Of HPCC's runs, at 25 Gbit/s."""
PAPER_CONFIG: Final = DcqcnConfig()
FIRMWARE_CONFIG: Final = FirmwareConfig()


def fastest_bps(topology: Topology) -> int:
    """Return the rate of the fastest link; 0 if none has one."""
    shapes = chain.from_iterable((link.shape_ab, link.shape_ba) for link in topology.links)
    return max((shape.rate_bps for shape in shapes if shape is not None), default=0)


def scaled(marking: RedProfile, factor: float) -> RedProfile:
    """Return a marking whose lengths are multiplied."""
    return RedProfile(round(marking.low_bytes * factor), round(marking.high_bytes * factor), marking.most)


def roce_framing(*, mtu: int, priority: int, extra_bytes: int = 0) -> Framing:
    """Return RoCEv2's framing for an IP MTU."""
    overhead = IP_UDP_BTH_BYTES + ICRC_BYTES + extra_bytes
    payload = next(each for each in ROCE_MTUS if each + overhead + RETH_BYTES <= mtu)
    reply = ETHERNET_HEADER_BYTES + IP_UDP_BTH_BYTES + AETH_BYTES + ICRC_BYTES
    return Framing(payload, ETHERNET_HEADER_BYTES + overhead, reply_bytes=reply, port=4791, priority=priority)


def tcp_framing(*, mtu: int) -> Framing:
    """Return TCP's framing for an IP MTU."""
    overhead = ETHERNET_HEADER_BYTES + TCP_IP_BYTES
    return Framing(mtu - TCP_IP_BYTES, overhead, reply_bytes=overhead, port=5201, priority=LOSSY)


class ModelTransport(Transport):
    """What the models have in common. Their connections are open. Settings are published ones unless others are given.

    `alpha`: of the dynamic threshold of the switches.
    """

    def __init__(self, *, alpha: float = LOSSY_ALPHA) -> None:
        self.alpha = alpha

    def switches(self, topology: Topology) -> SwitchProfile:
        """Return the switches that it is meant for."""
        return SwitchProfile(classes={LOSSY: ClassProfile(alpha=self.alpha)}, seed=topology.seed)

    def simulation(self, topology: Topology, *, config: ProtocolConfig, seed: int) -> Simulation:
        """Return a simulation with such switches. Raises ShapeError if a link has no rate."""
        return Simulation(topology, config=config, seed=seed, switches=self.switches(topology))

    def prepare(self, simulation: Simulation, pairs: Iterable[tuple[str, str]]) -> None:
        """Do nothing."""

    def flow(
        self, simulation: Simulation, source: str, destination: str, size_bytes: int, *, at: float, done: Done
    ) -> None:
        """Start a flow at a time."""
        self.start(simulation, source, destination, size_bytes, at_ns=round(at * NS_PER_S), done=done)

    def start(
        self, simulation: Simulation, source: str, destination: str, size_bytes: int, *, at_ns: int, done: Done
    ) -> NicFlow:
        """Start a flow at a time in ns, and return it."""
        framing = self.framing(simulation.fabric.topology)
        nic = simulation.nic(source)
        flow = nic.flow(
            simulation.nic(destination),
            size_bytes=size_bytes,
            framing=framing,
            sender=FlowSender(0),
            receiver=FlowReceiver(framing.packets(size_bytes)),
            done=lambda now_ns: done(now_ns / NS_PER_S),
        )
        self.equip(flow, packets=framing.packets(size_bytes))
        simulation.fabric.at(at_ns, lambda _: nic.start(flow))
        return flow

    def counters(self, simulation: Simulation) -> dict[str, int]:
        """Return data packets that were sent, how many of these had been sent before, and flows that were given up."""
        senders = [flow.sender for nic in simulation.nics.values() for flow in nic.flows]
        return {
            "packets_sent": sum(sender.sent for sender in senders),
            "packets_resent": sum(sender.resent for sender in senders),
            "flows_failed": sum(sender.has_failed for sender in senders),
        }

    def framing(self, topology: Topology) -> Framing:
        """Return how its packets look."""
        raise NotImplementedError

    def equip(self, flow: NicFlow, *, packets: int) -> None:
        """Give the flow its sender, and what else the model has."""
        raise NotImplementedError


class Roce(ModelTransport):
    """RoCEv2 on switches that pause: go-back-N, line rate."""

    def __init__(self, *, alpha: float = LOSSLESS_ALPHA, timeout_exponent: int = TIMEOUT_EXPONENT) -> None:
        super().__init__(alpha=alpha)
        self.timeout_ns = 4096 << timeout_exponent

    def switches(self, topology: Topology) -> SwitchProfile:
        """Return switches with one lossless class, which may mark."""
        profile = ClassProfile(lossless=True, alpha=self.alpha, red=self.red(fastest_bps(topology)))
        return SwitchProfile(classes={LOSSY: ClassProfile(), LOSSLESS: profile}, seed=topology.seed)

    def red(self, rate_bps: int) -> RedProfile | None:
        """Return how the class marks."""
        del rate_bps
        return None

    def framing(self, topology: Topology) -> Framing:
        """Return RoCEv2's."""
        return roce_framing(mtu=topology.mtu, priority=LOSSLESS)

    def equip(self, flow: NicFlow, *, packets: int) -> None:
        """Go-back-N at both ends."""
        flow.sender = GoBackNSender(
            packets,
            rate=self.rate(line_bps(flow)),
            packet_bytes=flow.length_bytes(0),
            timeout_ns=self.timeout_ns,
        )
        flow.receiver = GoBackNReceiver(packets)

    def rate(self, rate_bps: int) -> FlowRate:
        """Return the rate of a flow."""
        return FlowRate(rate_bps)


class Dcqcn(Roce):
    """RoCEv2 with DCQCN on switches that pause and mark; `marking`: at the rate `marked_bps`. The paper's settings."""

    def __init__(
        self,
        *,
        alpha: float = LOSSLESS_ALPHA,
        config: DcqcnConfig | FirmwareConfig = PAPER_CONFIG,
        marking: RedProfile = PAPER_MARKING,
        marked_bps: float = PAPER_BPS,
    ) -> None:
        super().__init__(alpha=alpha)
        self.config = config
        self.marking = marking
        self.marked_bps = marked_bps

    def red(self, rate_bps: int) -> RedProfile | None:
        """Return the marking."""
        return scaled(self.marking, rate_bps / self.marked_bps)

    def equip(self, flow: NicFlow, *, packets: int) -> None:
        """Notify of marks, too."""
        super().equip(flow, packets=packets)
        flow.notifications = Notifications(self.config.notification_interval_us)

    def rate(self, rate_bps: int) -> FlowRate:
        """Return DCQCN's."""
        return self.config.rate(rate_bps)


def firmware_dcqcn(
    *,
    alpha: float = LOSSLESS_ALPHA,
    firmware: FirmwareConfig = FIRMWARE_CONFIG,
    marking: RedProfile = FIRMWARE_MARKING,
) -> Dcqcn:
    """Return DCQCN with the defaults of network cards, and the marking of HPCC's runs, at FIRMWARE_BPS."""
    return Dcqcn(alpha=alpha, config=firmware, marking=marking, marked_bps=FIRMWARE_BPS)


class Irn(ModelTransport):
    """IRN on switches that drop."""

    def __init__(
        self, *, alpha: float = LOSSY_ALPHA, rto_low_ns: int = RTO_LOW_NS, rto_high_ns: int = RTO_HIGH_NS
    ) -> None:
        super().__init__(alpha=alpha)
        self.rto_low_ns, self.rto_high_ns = rto_low_ns, rto_high_ns

    def framing(self, topology: Topology) -> Framing:
        """Return RoCEv2's with IRN's larger header."""
        return roce_framing(mtu=topology.mtu, priority=LOSSY, extra_bytes=RETH_BYTES)

    def equip(self, flow: NicFlow, *, packets: int) -> None:
        """The window is what the path holds."""
        length = flow.length_bytes(0)
        window = -(-path_bdp_bytes(flow) // length)
        flow.sender = IrnSender(
            packets, window_packets=max(window, 1), rto_low_ns=self.rto_low_ns, rto_high_ns=self.rto_high_ns
        )


class Tcp(ModelTransport):
    """TCP with a controller by its name (controllers.py), on switches that drop.

    With `mark_bytes_per_gbps` they mark what leaves a longer queue behind, too: K, of DCTCP.
    """

    def __init__(
        self,
        controller: str,
        *,
        alpha: float = LOSSY_ALPHA,
        min_rto_s: float = MIN_RTO_S,
        mark_bytes_per_gbps: int = 0,
    ) -> None:
        super().__init__(alpha=alpha)
        self.controller = CONTROLLERS[controller]
        self.min_rto_s = min_rto_s
        self.mark_bytes_per_gbps = mark_bytes_per_gbps

    def switches(self, topology: Topology) -> SwitchProfile:
        """Return the switches, which mark if they are to."""
        mark = round(fastest_bps(topology) / 1e9 * self.mark_bytes_per_gbps)
        profile = ClassProfile(alpha=self.alpha, red=RedProfile(mark, mark) if mark else None)
        return SwitchProfile(classes={LOSSY: profile}, seed=topology.seed)

    def framing(self, topology: Topology) -> Framing:
        """Return TCP's."""
        return tcp_framing(mtu=topology.mtu)

    def equip(self, flow: NicFlow, *, packets: int) -> None:
        """Each flow has a controller of its own."""
        flow.sender = TcpFlowSender(packets, controller=self.controller(), min_rto_s=self.min_rto_s)


class TcpFlow:
    """An endless flow between two hosts that have no other, beside those of SRD; `start` it.

    Its counts are `sender.delivered`, `lost` and `sent`.
    """

    def __init__(self, fabric: VirtualFabric, source: str, destination: str, *, controller: TcpController) -> None:
        framing = tcp_framing(mtu=fabric.topology.mtu)
        self.packet_bytes = fabric.topology.mtu + ETHERNET_HEADER_BYTES
        """Of a full one on the wire."""
        self.sender = TcpFlowSender(ENDLESS, controller=controller)
        self._nic = Nic(fabric, source)
        self._flow = self._nic.flow(
            Nic(fabric, destination), size_bytes=ENDLESS * self.packet_bytes,
            framing=framing, sender=self.sender, receiver=FlowReceiver(ENDLESS),
        )  # fmt: skip

    def start(self) -> None:
        """Begin the flow."""
        self._nic.start(self._flow)


def rate_bps(link: VirtualLink) -> int:
    """Return a link's rate; 0: none."""
    return effective(link.shape).rate_bps


def line_bps(flow: NicFlow) -> int:
    """Return the rate of the flow's first link that has one: its card's."""
    return next((rate for link in flow.forth.links if (rate := rate_bps(link))), 100_000_000_000)


def path_bdp_bytes(flow: NicFlow) -> int:
    """Return the bandwidth-delay product of a flow's path: its slowest rate, and the round trip of a full packet."""
    slowest = min((rate for link in flow.forth.links if (rate := rate_bps(link))), default=line_bps(flow))
    rtt_s = 0.0
    for links, length in ((flow.forth.links, flow.length_bytes(0)), (flow.back.links, flow.framing.reply_bytes)):
        for link in links:
            rtt_s += effective(link.shape).delay_us * 1e-6 + length * 8 / (rate_bps(link) or slowest)
    return round(slowest * rtt_s / 8)
