"""srd.sim.models.irn: the window, which packets are repeated and in which order, the two timeouts."""

from __future__ import annotations

from srd.sim.models.flow import NEVER_NS, FlowReceiver, ReplyKind
from srd.sim.models.irn import RTO_HIGH_NS, RTO_LOW_NS, IrnSender


def send(sender: IrnSender, now_ns: int = 0) -> list[int]:
    """All that it sends now."""
    found = []
    while sender.ready_at(now_ns) <= now_ns:
        found.append(sender.take(now_ns))
    return found


def test_window__a_bandwidth_delay_product_beyond_what_is_acknowledged() -> None:
    sender, receiver = IrnSender(20, window_packets=8), FlowReceiver(20)
    assert send(sender) == list(range(8))
    for psn in (0, 1):
        reply = receiver.handle(psn, transmission=psn, marked=False)
        assert reply is not None
        sender.handle(reply, 10)
    assert send(sender, 10) == [8, 9]


def test_recovery__repeats_each_hole_once_then_goes_on() -> None:
    sender, receiver = IrnSender(30, window_packets=12), FlowReceiver(30)
    send(sender)
    replies = [receiver.handle(psn, transmission=psn, marked=False) for psn in (0, 2, 3, 5, 6)]
    for reply in replies:
        assert reply is not None
        sender.handle(reply, 10)
    assert send(sender, 10) == [1, 4, 12]
    assert sender.resent == 2
    for psn in (7, 8):  # more of them repeat nothing again
        reply = receiver.handle(psn, transmission=psn, marked=False)
        assert reply is not None
        sender.handle(reply, 20)
    assert send(sender, 20) == []
    reply = receiver.handle(1, transmission=12, marked=False)
    assert reply is not None
    assert (reply.kind, reply.cumulative) == (ReplyKind.ACK, 4)


def test_timeouts__low_with_three_in_flight_at_most() -> None:
    sender = IrnSender(3, window_packets=10)
    send(sender)
    assert sender.timeout_at == RTO_LOW_NS
    many = IrnSender(9, window_packets=10)
    send(many)
    receiver = FlowReceiver(9)
    reply = receiver.handle(0, transmission=0, marked=False)
    assert reply is not None
    many.handle(reply, 1_000)
    assert many.timeout_at == 1_000 + RTO_HIGH_NS
    many.handle_timeout(many.timeout_at)
    assert send(many, RTO_HIGH_NS * 2) == [1], "only the first that is missing: nothing is known of the others"


def test_done__no_timer_is_left() -> None:
    sender, receiver = IrnSender(4, window_packets=10), FlowReceiver(4)
    for psn in send(sender):
        reply = receiver.handle(psn, transmission=psn, marked=False)
        assert reply is not None
        sender.handle(reply, 5)
    assert sender.is_done
    assert sender.timeout_at == NEVER_NS
