"""ACKs that go with data: a request and its reply are two datagrams; what is no ACK there is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netns.netem.shape import Shape
from srd.proto.base.security import Security, SecurityMode
from srd.proto.events import MessageReceived
from srd.proto.wire.control import NO_PATH, Ack, Close, Datagram, Probe, decode_untrusted
from srd.proto.wire.data import (
    ABORTED,
    HEADER_BYTES,
    IMMEDIATE,
    MAX_ACK_WITH_DATA_BYTES,
    WITH_ACK,
    Burst,
    GroDatagram,
    Opcode,
    write_headers,
)
from srd.proto.work_request import WorkRequest
from tests.simulation import Conditions, Network, Node, completed, content, ended, received, release
from tests.srd.proto.byhand import answers, data_packet, opened_by_hand
from tests.srd.secure.ends import security

REQUEST_BYTES = 64
EXCHANGES = 50


def both(mode: SecurityMode) -> dict[str, Security]:
    made = {name: security(mode, name) for name in "ab"}
    return {name: each for name, each in made.items() if each is not None}


class Exchange(Network):
    """Applications that reply in the turn that delivers: b to each request, and a to each reply by its next request."""

    requests = 0

    def begin(self) -> None:
        self.sent: list[Burst | Datagram] = []
        self.at_a, self.at_b = self.connect()
        self.run(seconds=1)
        self.on_sent = lambda _node, out: self.sent.append(out)
        self.ask()

    def ask(self) -> None:
        if self.requests < EXCHANGES:
            self.requests += 1
            self.post(self.a, self.at_a)

    def post(self, node: Node, peer: int) -> None:
        start = self.requests * 1000
        node.core.post(peer, WorkRequest(self.requests, REQUEST_BYTES, start, immediate=self.requests))

    def _deliver_events(self, node: Node) -> None:
        before = len(node.events)
        super()._deliver_events(node)
        for event in node.events[before:]:
            if isinstance(event, MessageReceived):
                release(node, event, now=self.now)
                if node is self.b:
                    self.post(node, self.at_b)
                else:
                    self.ask()

    def check(self) -> None:
        self.run(until=lambda: len(received(self.a)) == EXCHANGES, seconds=60)
        self.run(seconds=1)
        assert len(received(self.a)) == len(received(self.b)) == EXCHANGES
        for sender, receiver in ((self.a, self.b), (self.b, self.a)):
            for message in received(receiver):
                start = (message.immediate or 0) * 1000
                assert content(receiver, message.extents) == sender.region[start : start + REQUEST_BYTES].tobytes()
            assert sorted(done.request for done in completed(sender)) == list(range(1, EXCHANGES + 1))
        assert not ended(self.a)
        assert not ended(self.b)


@pytest.mark.parametrize("mode", SecurityMode)
def test_exchange__a_request_and_its_reply_are_two_datagrams(mode: SecurityMode) -> None:
    network = Exchange(seed=1, security=both(mode))
    network.begin()
    network.check()
    data = [out for out in network.sent if isinstance(out, Burst)]
    assert [out.ack is not None for out in data] == [False, *[True] * (2 * EXCHANGES - 1)], "but for the first"
    assert network.sent[: len(data)] == data, "nothing else before the ACK of the last reply"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("joins", [False, True])
def test_exchange__with_losses_duplicates_and_segment_trains(seed: int, *, joins: bool) -> None:
    network = Exchange(
        seed=seed,
        shape=Shape(delay_us=500, loss_percent=10),
        conditions=Conditions(duplicate=0.1, reorder_s=0.002),
        security=both(SecurityMode.PSK),
    )
    network.joins = joins
    network.begin()
    network.check()
    assert any(isinstance(out, Burst) and out.ack is not None for out in network.sent)


def test_poll__acks_that_answer_a_probe_take_paths_of_their_own() -> None:
    network = Network(seed=1)
    context = opened_by_hand(network).own_context
    answers(network.b, now=network.now)
    core = network.b.core
    core.handle_packets([data_packet(context, source="x:1")], controls=[], now=network.now)
    probe = Probe(context, 77, 0, 5, 0).encode()
    core.handle_packets([], controls=[(probe, "x:1", network.now)], now=network.now)
    core.post(0, WorkRequest(0, REQUEST_BYTES, 0))
    burst = core.poll_transmit(network.now, data_only=True)
    assert isinstance(burst, Burst)
    assert burst.ack is None


def test_poll__a_part_of_a_message_takes_no_ack() -> None:
    network = Network(seed=1)
    context = opened_by_hand(network).own_context
    answers(network.b, now=network.now)
    network.b.core.handle_packets([data_packet(context, source="x:1")], controls=[], now=network.now)
    network.b.core.post(0, WorkRequest(0, 1500, 0))
    for later_s in (0.0, 0.1):  # the pacer lets one pass at a time
        burst = network.b.core.poll_transmit(network.now + later_s, data_only=True, most_packets=1)
        assert isinstance(burst, Burst)
        assert (burst.count, burst.ack) == (1, None)


def test_poll__the_ack_is_that_which_would_have_gone_alone() -> None:
    network = Network(seed=1)
    accept = opened_by_hand(network)
    answers(network.b, now=network.now)
    core = network.b.core
    core.handle_packets([data_packet(accept.own_context, psn=1, source="x:1")], controls=[], now=network.now)
    core.post(0, WorkRequest(0, REQUEST_BYTES, 0))
    burst = core.poll_transmit(network.now)
    assert isinstance(burst, Burst)
    assert burst.ack is not None
    ack = decode_untrusted(burst.ack)
    assert isinstance(ack, Ack)
    assert (ack.cumulative, ack.bitmap, ack.context) == (0, 0b10, burst.context)
    assert [report.packets for report in ack.reports] == [1]
    assert burst.carried_bytes == REQUEST_BYTES + len(burst.ack)
    assert core.poll_transmit(network.now + 1) is None, "nothing is due any more"


@pytest.mark.parametrize(
    ("length", "more"),
    [
        (8972 - HEADER_BYTES, {}),  # no room
        (8972 - HEADER_BYTES - 75, {}),
        (100_000, {}),  # several packets
        (64, {"opcode": Opcode.WRITE, "key": 5}),
        (64, {"opcode": Opcode.READ, "key": 5, "local_key": 1}),
    ],
)
def test_poll__what_takes_no_ack(length: int, more: dict[str, int]) -> None:
    network = Network(seed=1)
    network.a.keys.ranges[1] = (0, 1 << 20, "lrw")
    at_a, at_b = network.connect()
    network.run(seconds=1)
    network.b.core.post(at_b, WorkRequest(1, 64, 0))
    network.run(until=lambda: bool(received(network.a)))
    network.a.core.handle_packets([], controls=[], now=network.now)
    network.a.core.peer(at_a).acks.due_at = network.now
    network.a.core.post(at_a, WorkRequest(1, length, 0, **more))  # type: ignore[arg-type]
    out = network.a.core.poll_transmit(network.now, data_only=True)
    assert isinstance(out, Burst)
    assert out.ack is None


# -- what a peer may say ---------------------------------------------------------------------------------------------


class Crafted:
    """A core that reads what is given as landed, and packets of a peer opened by hand."""

    def __init__(self) -> None:
        self.network = Network(seed=1)
        self.context = opened_by_hand(self.network).own_context
        answers(self.network.b, now=self.network.now)
        self.core = self.network.b.core
        self._malformed = self.core.malformed

    def give(self, payload: bytes, *, length: int, flags: int = WITH_ACK, count: int = 1, psn: int = 0) -> list[bytes]:
        """Give packets that carry `payload` in all; return the content of the messages that are delivered."""
        burst = Burst("", 0, psn, self.context, psn, count, 0, psn, length, 0, 0, 0, 0, len(payload), 0, flags)
        burst.segment_bytes = len(payload) // count
        headers = memoryview(bytearray(count * HEADER_BYTES))
        write_headers(burst, out=headers)
        self.network.b.landing[: len(payload)] = list(payload)
        now = self.network.now
        arrival = GroDatagram(headers, count, 0, len(payload), burst.segment_bytes, "x:1", now)
        self.core.handle_packets([arrival], controls=[], now=now)
        found = []
        while (event := self.core.poll_event()) is not None:
            if isinstance(event, MessageReceived):
                found.append(content(self.network.b, event.extents))
        return found

    def ack(self, **changes: int) -> bytes:
        fields = {"cumulative": 0, "bitmap": 0, "credit_bytes": 1 << 20, "credit_messages": 1 << 10} | changes
        return Ack(**({"context": self.context, "reports": ()} | fields)).encode()  # type: ignore[arg-type]

    @property
    def malformed(self) -> int:
        """Packets that were counted as malformed since the opening."""
        return self.core.malformed - self._malformed


def test_handle__the_message_is_as_long_as_it_says_and_the_ack_counts() -> None:
    made = Crafted()
    made.core.post(0, WorkRequest(7, 10, 0))
    assert isinstance(made.core.poll_transmit(made.network.now), Burst)
    assert made.give(b"payload" + made.ack(cumulative=1), length=7) == [b"payload"]
    assert made.malformed == 0
    made.core.post(0, WorkRequest(8, 10, 0))
    sender = made.core.peer(0).sender
    assert not sender.queue.by_request(7), "the ACK has completed it"


def test_handle__an_ack_with_data_came_over_no_ack_path() -> None:
    made = Crafted()
    alone = made.ack(path=3, remote_path=1)
    made.core.handle_packets([], controls=[(alone, "x:1", made.network.now)], now=made.network.now)
    sender = made.core.peer(0).sender
    assert sender.queueing.ack_paths.best == (3, 1)
    assert made.give(b"payload" + made.ack(path=NO_PATH, remote_path=NO_PATH), length=7) == [b"payload"]
    assert sender.queueing.ack_paths.best == (3, 1)


LIES: dict[str, Callable[[Crafted], bytes]] = {
    "nothing": lambda _: b"",
    "noise": lambda _: bytes(range(80)),
    "an ACK cut short": lambda made: made.ack()[:-1],
    "more than an ACK": lambda made: made.ack() + b"x",
    "of another context": lambda made: made.ack(context=made.context + 1),
    "a CLOSE": lambda made: Close(made.context, 77).encode(),
    "a PROBE": lambda made: Probe(made.context, 77, 0, 5, 0).encode(),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_handle__no_ack_behind_the_message_bad_flow(lie: Callable[[Crafted], bytes]) -> None:
    made = Crafted()
    assert made.give(b"payload" + lie(made), length=7) == []
    assert made.malformed == 1
    assert made.core.open_peers == [0], "nothing that came with data ends a peer"
    assert made.give(b"payload" + made.ack(), length=7) == [b"payload"], "its packet was not counted as received"


def test_handle__an_ack_of_what_was_never_sent_bad_flow() -> None:
    made = Crafted()
    assert made.give(b"payload" + made.ack(cumulative=5), length=7) == [b"payload"]
    assert made.malformed == 1


ACK_BYTES = len(Crafted().ack())


@pytest.mark.parametrize(
    ("payload", "packets"),
    [
        *[
            (b"payload", {"length": 7, "flags": WITH_ACK | flags})
            for flags in (Opcode.READ, Opcode.WRITE, Opcode.RESPONSE, ABORTED, ABORTED | IMMEDIATE)
        ],
        (b"payload", {"length": 7 + ACK_BYTES}),
        (b"payload", {"length": 1000}),
        (b"payload", {"length": 7, "count": 2}),
    ],
    ids=str,
)
def test_handle__only_a_whole_send_in_one_packet_has_an_ack_bad_flow(payload: bytes, packets: dict[str, int]) -> None:
    made = Crafted()
    assert made.give((payload + made.ack()) * packets.get("count", 1), **packets) == []
    assert made.malformed == 1


def test_handle__by_an_owner_that_cannot_read() -> None:
    """The ACK is left out, and the next one says the same; a packet without one is still refused."""
    made = Crafted()
    made.core._shared.read = None
    for length in (8, 100):
        assert made.give(b"8 bytes!", length=length) == []
    assert made.malformed == 2
    assert made.give(b"8 bytes!" + made.ack(), length=8) == [b"8 bytes!"]


def test_ack_with_data__is_short_enough_for_a_transmitter() -> None:
    """A long bitmap goes in an ACK of its own."""
    network = Network(seed=1)
    context = opened_by_hand(network).own_context
    answers(network.b, now=network.now)
    for psn in range(1, 8 * MAX_ACK_WITH_DATA_BYTES, 40):
        network.b.core.handle_packets(
            [data_packet(context, psn=psn, message=psn, source="x:1")], controls=[], now=100.0
        )
    network.b.core.post(0, WorkRequest(0, REQUEST_BYTES, 0))
    burst = network.b.core.poll_transmit(100.0, data_only=True)
    assert isinstance(burst, Burst)
    assert burst.ack is None
