"""srd.sim.models.irn: the window, which packets are repeated and in which order, the two timeouts."""

from __future__ import annotations

from collections.abc import Iterable

from srd.sim.models.flow import NEVER_NS, FlowReceiver, ReplyKind
from srd.sim.models.irn import RTO_HIGH_NS, RTO_LOW_NS, IrnSender


def send(sender: IrnSender, now_ns: int = 0) -> list[int]:
    """All that it sends now."""
    found = []
    while sender.ready_at(now_ns) <= now_ns:
        found.append(sender.take(now_ns))
    return found


def deliver(sender: IrnSender, receiver: FlowReceiver, psns: Iterable[int], *, now_ns: int) -> None:
    """Have packets arrive, and then their replies."""
    for psn in psns:
        reply = receiver.handle(psn, transmission=psn, marked=False)
        assert reply is not None
        sender.handle(reply, now_ns)


def test_window__a_bandwidth_delay_product_beyond_what_is_acknowledged() -> None:
    sender, receiver = IrnSender(20, window_packets=8), FlowReceiver(20)
    assert send(sender) == list(range(8))
    deliver(sender, receiver, (0, 1), now_ns=10)
    assert send(sender, 10) == [8, 9]


def test_recovery__repeats_each_hole_once_then_goes_on() -> None:
    sender, receiver = IrnSender(30, window_packets=12), FlowReceiver(30)
    send(sender)
    deliver(sender, receiver, (0, 2, 3, 5, 6), now_ns=10)
    assert send(sender, 10) == [1, 4, 12]
    assert sender.resent == 2
    deliver(sender, receiver, (7, 8), now_ns=20)  # more of them repeat nothing again
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
    deliver(many, receiver, [0], now_ns=1_000)
    assert many.timeout_at == 1_000 + RTO_HIGH_NS
    many.handle_timeout(many.timeout_at)
    assert send(many, RTO_HIGH_NS * 2) == [1], "only the first that is missing: nothing is known of the others"


def test_done__no_timer_is_left() -> None:
    sender, receiver = IrnSender(4, window_packets=10), FlowReceiver(4)
    deliver(sender, receiver, send(sender), now_ns=5)
    assert sender.is_done
    assert sender.timeout_at == NEVER_NS


def test_recovery__ends_when_all_that_had_been_sent_is_acknowledged_and_an_old_nack_begins_none() -> None:
    sender, receiver = IrnSender(30, window_packets=12), FlowReceiver(30)
    send(sender)
    nack = receiver.handle(1, transmission=1, marked=False)
    assert nack is not None
    sender.handle(nack, 10)
    assert send(sender, 10) == [0]
    deliver(sender, receiver, (0, *range(2, 12)), now_ns=20)
    assert send(sender, 20) == list(range(12, 24)), "the recovery is over: nothing is repeated"
    sender.handle(nack, 30)  # it was late on its way
    assert send(sender, 30) == []
    deliver(sender, receiver, (13, 14), now_ns=40)
    assert send(sender, 40) == [12], "a new one"


def test_recovery__goes_on_until_then_and_repeats_nothing_twice() -> None:
    sender, receiver = IrnSender(30, window_packets=12), FlowReceiver(30)
    send(sender)
    sent = []
    for psn in (1, 4, 0, 5):  # 0 comes again; 2 and 3 are on their way again, too
        deliver(sender, receiver, [psn], now_ns=10)
        sent.append(send(sender, 10))
    assert sent == [[0], [2, 3], [12, 13], []]


def test_timeouts__count_what_is_in_flight_and_begin_anew_with_each_acknowledgement() -> None:
    sender, receiver = IrnSender(8, window_packets=10), FlowReceiver(8)
    send(sender)
    for psn in (1, 2, 3, 4):
        deliver(sender, receiver, [psn], now_ns=1_000 * psn)
    assert sender.timeout_at == 4_000 + RTO_HIGH_NS, "0 and 5 to 7 are in flight"
    deliver(sender, receiver, [5], now_ns=5_000)
    assert sender.timeout_at == 5_000 + RTO_LOW_NS, "three are left"
