"""srd.proto.send.queue, flows that take turns: the queue alone, against a plain model, and peers with many flows."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from netns.netem.shape import Shape
from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.send.sender import WINDOW_PER_FLOWS, Sender
from srd.proto.wire.data import Opcode, PacketType
from srd.proto.wire.status import Status
from tests.simulation import Conditions, Packet, completed
from tests.srd.proto.congestion.fixed import Fixed
from tests.srd.proto.contract import KEY_B, MIB, Pair
from tests.srd.proto.send.posted import SEGMENT_BYTES, Posted

LIMIT = 3
SLOW = Shape(delay_us=500, rate_bps=10_000_000, limit_packets=200)
NARROW: dict[str, Any] = {"window_packets": 64, "controller": Fixed, "initial_window_packets": 64}


class Flows(Posted):
    """A send queue with writes of several flows."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        super().__init__(max_partial_flows=limit)

    def write(self, flow: int, *, bursts: int = 1) -> OutgoingMessage:
        """Post a write of so many packets."""
        return self.post(Opcode.WRITE, length=bursts * SEGMENT_BYTES, flow=flow)

    @property
    def waiting(self) -> set[int]:
        """The flows that have something to send."""
        uncredited = self.queue._uncredited
        return set() if uncredited is None else set(uncredited._flows)


# -- the queue ------------------------------------------------------------------------------------------------------


class FlowMachine(RuleBasedStateMachine):
    """Messages of five flows, of which three may be partially packetized, against lists."""

    def __init__(self) -> None:
        super().__init__()
        self.flows = Flows()
        self.model: dict[int, list[OutgoingMessage]] = {}

    @rule(flow=st.integers(0, 4), bursts=st.integers(0, 4))
    def append(self, flow: int, bursts: int) -> None:
        message = self.flows.write(flow, bursts=bursts)
        self.model.setdefault(flow, []).append(message)

    @precondition(lambda self: self.model)
    @rule()
    def packetize(self) -> None:
        started = self.partial
        head = self.flows.queue.head()
        assert head is not None
        assert head is self.model[head.wr.flow][0], "in order of posting"
        assert head.packetized or len(started) < LIMIT
        fair = [flow for flow in self.model if len(started) < LIMIT or flow in started]
        assert head.wr.flow == fair[0], "the flow that has waited longest, of those that may"
        self.flows.packetize()
        messages = self.model.pop(head.wr.flow)
        if not head.left:
            messages.pop(0)
        if messages:
            self.model[head.wr.flow] = messages

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        flow = data.draw(st.sampled_from(sorted(self.model)), "flow")
        message = data.draw(st.sampled_from(range(len(self.model[flow]))), "message")
        self.flows.queue.abort(self.model[flow].pop(message), status=Status.FLUSHED)
        if not self.model[flow]:
            del self.model[flow]

    @property
    def partial(self) -> list[int]:
        return [flow for flow, messages in self.model.items() if messages[0].packetized]

    @invariant()
    def the_same(self) -> None:
        assert self.flows.queue.partial_flows == len(self.partial) <= LIMIT
        assert self.flows.waiting == set(self.model)


TestFlows = FlowMachine.TestCase
TestFlows.settings = settings(max_examples=100, stateful_step_count=40)


# -- a peer with many flows -----------------------------------------------------------------------------------------


def sender_of(pair: Pair) -> Sender:
    return pair.a.core.peer(pair.at_a).sender


def test_write__a_short_one_ends_after_a_bounded_number_of_bursts() -> None:
    """12 MiB of three other flows take 10 s."""
    pair = Pair(shape=SLOW)
    for flow in range(3):
        pair.write(flow, length=4 * MIB, flow=flow)
    pair.network.run(seconds=0.5)
    sent: list[int] = []

    def note(direction: str, packet: Packet) -> bool:
        if direction == "a" and packet[0][1] == PacketType.DATA:
            sent.append(int.from_bytes(packet[0][28:32], "big"))
        return False

    pair.network.loses = note
    pair.write(9, length=8000, flow=9, offset=MIB)
    assert pair.run(9, seconds=1) == {9: Status.OK}
    before = sent[: sent.index(3)]
    assert len([message for message, _ in groupby(before)]) <= 3, "a burst of each of the others"


@pytest.mark.parametrize("seed", range(3))
def test_write__a_hundred_flows_in_a_window_of_64(seed: int) -> None:
    """No deadlock, whatever part of the window is kept for aborts; no more than the limit are begun."""
    pair = Pair(seed=seed, shape=Shape(delay_us=500, loss_percent=2), conditions=Conditions(reorder_s=0.001), **NARROW)
    for flow in range(100):
        pair.write(flow, length=60_000, at=flow, offset=flow * 60_000, flow=flow)
    queue, most = sender_of(pair).queue, 0

    def watch() -> bool:
        nonlocal most
        most = max(most, queue.partial_flows)
        return len(completed(pair.a)) == 100

    pair.network.run(until=watch, seconds=60)
    assert pair.statuses() == dict.fromkeys(range(100), Status.OK)
    assert 1 < most <= 64 // WINDOW_PER_FLOWS
    assert queue.partial_flows == 0
    for flow in range(100):
        assert pair.written(flow * 60_000, 60_000) == pair.a.region[flow : flow + 60_000].tobytes()
    pair.network.run(seconds=0.2)
    assert pair.is_idle()


@pytest.mark.parametrize("flows", [1, 3, 8, 20])
def test_cancel__partially_packetized_messages_of_many_flows_find_a_psn(flows: int) -> None:
    """With a full window each ABORT still fits into the receiver's window, and the others complete."""
    pair = Pair(shape=SLOW, **NARROW)
    for flow in range(flows):
        pair.write(flow, length=MIB, flow=flow)
        pair.write(100 + flow, length=10_000, offset=MIB, flow=flow)
    pair.send(200, length=MIB)
    sender = sender_of(pair)
    pair.network.run(until=lambda: sender._window_room_packets() <= 0, seconds=5)
    assert sender._window_room_packets() <= 0
    assert sender.queue.partial_flows >= min(flows, 6)
    pair.network.loses = lambda direction, _: direction == "b"  # no ack makes room meanwhile
    for request in [*range(flows), 200]:
        pair.cancel(request)
        assert sender._inflight.next_psn - sender._inflight.base <= 64
    assert sender.queue.partial_flows == 0
    pair.network.run(seconds=0.1)
    pair.network.loses = None
    assert pair.run(*range(100, 100 + flows)) == {
        **dict.fromkeys([*range(flows), 200], Status.FLUSHED), **dict.fromkeys(range(100, 100 + flows), Status.OK)
    }  # fmt: skip
    pair.network.run(seconds=1)
    assert sender.queue.partial_flows == 0
    assert pair.is_idle()


def test_read__refused_answers_of_many_flows() -> None:
    """An answer that is ABORTED from the beginning takes its turn, and leaves no flow partial."""
    pair = Pair(shape=SLOW, **NARROW)
    for request in range(50):
        pair.read(request, length=100_000 if request % 2 else 10, key=KEY_B if request % 2 else 1)
    pair.run(*range(50))
    assert [pair.statuses()[request] is Status.OK for request in range(50)] == [bool(r % 2) for r in range(50)]
    responder = pair.b.core.peer(pair.at_b).sender
    assert responder is not None
    assert responder.queue.partial_flows == 0
    assert pair.is_idle()
