"""srd.sim.models.go_back_n: in order or not at all, one NAK a gap, timeouts and retries."""

from __future__ import annotations

from srd.sim.models.flow import NEVER_NS, FlowRate, FlowReply, ReplyKind
from srd.sim.models.go_back_n import RETRIES, TIMEOUT_NS, GoBackNReceiver, GoBackNSender


def sender(packets: int = 20) -> GoBackNSender:
    return GoBackNSender(packets, rate=FlowRate(100e9), packet_bytes=4_154)


def reply(kind: ReplyKind, cumulative: int) -> FlowReply:
    return FlowReply(kind, cumulative, cumulative, 0, marked=False)


def test_receiver__answers_a_gap_with_one_nak_and_drops_what_follows() -> None:
    receiver = GoBackNReceiver(20)
    found = [receiver.handle(psn, transmission=0, marked=False) for psn in (0, 2, 3, 4, 1, 3, 2)]
    kinds = [each and (each.kind, each.cumulative) for each in found]
    assert kinds == [None, (ReplyKind.NAK, 1), None, None, None, (ReplyKind.NAK, 2), None]
    assert receiver.expected == 3


def test_receiver__acknowledges_the_last_packet_every_eighth_and_what_came_before() -> None:
    receiver = GoBackNReceiver(10)
    found = [receiver.handle(psn, transmission=0, marked=False) for psn in range(10)]
    assert [each.cumulative for each in found if each] == [8, 10]
    assert receiver.is_complete
    again = receiver.handle(4, transmission=0, marked=False)
    assert again is not None
    assert (again.kind, again.cumulative) == (ReplyKind.ACK, 10)


def test_sender__goes_back_to_what_is_missing() -> None:
    one = sender()
    assert [one.take(0) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    one.handle(reply(ReplyKind.NAK, 2), 100)
    assert [one.take(200) for _ in range(5)] == [2, 3, 4, 5, 6]
    assert one.resent == 4
    one.handle(reply(ReplyKind.NAK, 1), 300)  # an old one changes nothing
    assert one.take(400) == 7


def test_sender__gives_up_after_seven_retries() -> None:
    one = sender()
    one.take(0)
    now = 0
    for _ in range(RETRIES):
        assert one.timeout_at == now + TIMEOUT_NS
        now = one.timeout_at
        one.handle_timeout(now)
        assert not one.has_failed
        assert one.take(now) == 0
    one.handle_timeout(now + TIMEOUT_NS)
    assert one.has_failed
    assert one.ready_at(now) == NEVER_NS


def test_sender__an_acknowledgement_resets_the_retries_and_the_timer() -> None:
    one = sender()
    for _ in range(3):
        one.take(0)
    one.handle_timeout(TIMEOUT_NS)
    one.handle(reply(ReplyKind.ACK, 3), TIMEOUT_NS + 5)
    assert one.timeout_at == NEVER_NS
    one.take(TIMEOUT_NS + 10)
    for turn in range(RETRIES):
        one.handle_timeout(turn)
    assert not one.has_failed
