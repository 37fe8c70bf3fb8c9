"""srd.sim.models.nic: flows take turns, a pause stops those of its class only, notifications overtake data."""

from __future__ import annotations

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import CONTROL, LOSSLESS, LOSSY, ClassProfile, SwitchProfile
from srd.sim.models.dcqcn import Notifications
from srd.sim.models.flow import FlowRate, FlowReceiver
from srd.sim.models.go_back_n import GoBackNSender
from srd.sim.models.nic import Framing, Nic, NicFlow
from srd.sim.roce.fabrics import tree

PAYLOAD_BYTES = 4096


class Cards:
    """Two hosts, and flows from the first to the second."""

    def __init__(self) -> None:
        switches = SwitchProfile(classes={LOSSY: ClassProfile(), LOSSLESS: ClassProfile(lossless=True)})
        self.fabric = VirtualFabric(tree(leaves=1, hosts_per_leaf=2, spines=1, seed=1), switches=switches)
        self.source, self.destination = Nic(self.fabric, "h1"), Nic(self.fabric, "h2")
        self.done_ns: dict[int, int] = {}

    def flow(self, *, packets: int, priority: int, notifications: Notifications | None = None) -> NicFlow:
        number = len(self.source.flows)
        flow = self.source.flow(
            self.destination,
            size_bytes=packets * PAYLOAD_BYTES,
            framing=Framing(PAYLOAD_BYTES, 58, reply_bytes=62, port=1000 + number, priority=priority),
            sender=GoBackNSender(packets, rate=FlowRate(100e9), packet_bytes=PAYLOAD_BYTES + 58),
            receiver=FlowReceiver(packets),
            notifications=notifications,
            done=lambda now_ns: self.done_ns.update({number: now_ns}),
        )
        self.source.start(flow)
        return flow

    def port(self) -> EgressPort:
        port = self.source.port
        assert port is not None
        return port


def test_flows__take_turns() -> None:
    cards = Cards()
    for _ in range(2):
        cards.flow(packets=100, priority=LOSSLESS)
    cards.fabric.run(until_ns=10**8)
    packet_ns = (PAYLOAD_BYTES + 58) * 0.08
    assert abs(cards.done_ns[1] - cards.done_ns[0]) < 3 * packet_ns


def test_pause__stops_the_flows_of_its_class() -> None:
    cards = Cards()
    cards.port().pause(LOSSLESS, for_ns=50_000)
    stopped, other = (cards.flow(packets=10, priority=priority) for priority in (LOSSLESS, LOSSY))
    cards.fabric.run(until_ns=40_000)
    assert (stopped.sender.sent, other.done_at_ns > 0) == (0, True)
    assert cards.port().queued_bytes[LOSSLESS] == 0, "they wait in the card, and not in its port"
    cards.fabric.run(until_ns=10**8)
    assert stopped.done_at_ns > 50_000


def test_notifications__are_of_the_control_class() -> None:
    cards = Cards()
    flow = cards.flow(packets=1, priority=LOSSLESS, notifications=Notifications(50.0))
    assert (flow.forth.priority, flow.back.priority, flow.notify.priority) == (LOSSLESS, LOSSLESS, CONTROL)
