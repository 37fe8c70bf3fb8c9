"""srd.proto.peer_trace: the trace of a transfer in virtual time, against the core's own counters."""

from __future__ import annotations

from typing import TypeVar

import pytest

from netns.netem.shape import Shape
from srd.proto import trace
from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import Extent, PeerOpened
from srd.proto.peer_trace import PeerTrace
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Conditions, Network, completed, connected, received

LOSSY = Shape(delay_us=500, loss_percent=2)
MIB = 1 << 20
E = TypeVar("E")


class ListSink:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.records: list[tuple[float, int, trace.TraceEvent]] = []

    def record(self, event: trace.TraceEvent, *, peer: int, now: float) -> None:
        self.records.append((now, peer, event))

    def of(self, kind: type[E]) -> list[E]:
        return [event for _, _, event in self.records if isinstance(event, kind)]


def traced(seed: int, *, shape: Shape | None = None) -> tuple[Network, ListSink, ListSink, int]:
    """A network with a peer from a to b: both ends' traces, and its number at a."""
    a, b = ListSink(), ListSink()
    network = Network(seed=seed, shape=shape, traces={"a": a, "b": b})
    return network, a, b, network.connect()[0]


def transfer(
    seed: int, *, shape: Shape = LOSSY, conditions: Conditions | None = None, size_bytes: int = 4 * MIB
) -> tuple[Network, ListSink, ListSink, PeerCore, PeerCore]:
    """Send one message; returns the network, both ends' traces, and both ends' peers as they were at its end."""
    a, b = ListSink(), ListSink()
    network, at_a, at_b = connected(seed=seed, shape=shape, conditions=conditions, traces={"a": a, "b": b})
    cores = network.a.core.peer(at_a), network.b.core.peer(at_b)
    network.a.core.post(at_a, WorkRequest(request=41, payload_offset=0, length=size_bytes))
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    network.a.core.close(at_a, now=network.now)
    network.run(seconds=2)
    return network, a, b, *cores


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sender__the_trace_adds_up_to_what_the_core_counted(seed: int) -> None:
    _, a, _, core, _ = transfer(seed)
    bursts, acks, losses = a.of(trace.BurstSent), a.of(trace.AckReceived), a.of(trace.PacketsLost)
    again = [burst for burst in bursts if burst.retransmission]
    assert sum(burst.packets for burst in bursts) == core.sender.packets
    assert sum(burst.packets for burst in again) == core.sender.retransmitted > 0
    assert sum(burst.payload_bytes for burst in bursts if not burst.retransmission) == 4 * MIB
    assert sum(ack.acked_packets for ack in acks) == sum(b.packets for b in bursts if not b.retransmission)
    assert acks[-1].cumulative == max(burst.psn + burst.packets for burst in bursts)
    assert a.of(trace.MetricsUpdated)[-1].inflight_bytes == core.sender.inflight_bytes
    assert max(burst.inflight_bytes for burst in bursts) > 0
    for path in core.sender.paths:
        mine = [burst for burst in bursts if burst.path == path.index]
        assert sum(burst.packets for burst in mine) == path.counters.packets
        assert sum(loss.packets for loss in losses if loss.path == path.index) == path.counters.lost
        samples = [sample for sample in a.of(trace.PathSampled) if sample.path == path.index]
        if samples:
            assert samples[-1].smoothed_us == pytest.approx(path.rtt.smoothed_s * 1e6, abs=0.1)
            # Short packets, probes for example, do not count while there are long ones.
            assert samples[-1].min_us in [sample.rtt_us for sample in samples]
    assert [event.status for event in a.of(trace.RequestCompleted)] == ["OK"]
    assert [event.request for event in a.of(trace.RequestCompleted)] == [41]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_receiver__the_trace_adds_up_to_what_the_core_counted(seed: int) -> None:
    network, _, b, _, core = transfer(seed, conditions=Conditions(duplicate=0.05))
    bursts = b.of(trace.DataReceived)
    assert sum(burst.packets for burst in bursts) == core.receiver.packets
    assert sum(burst.kept_bytes for burst in bursts) == core.receiver.landed_bytes == 4 * MIB
    assert sum(burst.payload_bytes for burst in bursts) > 4 * MIB, "duplicates arrived, and were not kept"
    assert [event.length_bytes for event in b.of(trace.MessageReceived)] == [4 * MIB]
    assert all(burst.incomplete for burst in bursts[: len(bursts) // 2])
    assert not bursts[-1].incomplete
    assert b.of(trace.AckSent)[-1].cumulative == max(burst.psn + burst.packets for burst in bursts)
    assert b.of(trace.AckSent)[0].reports >= 1
    assert len(received(network.b)) == 1


def test_peer__opening_and_end_are_in_both_traces() -> None:
    _, a, b, core, _ = transfer(4)
    assert a.of(trace.PeerOpened) == [trace.PeerOpened("b:0", incoming=False, datagram_bytes=8972, paths=32)]
    assert b.of(trace.PeerOpened) == [trace.PeerOpened("a:0", incoming=True, datagram_bytes=8972, paths=32)]
    assert a.of(trace.PeerEnded) == [trace.PeerEnded("OK", "closed")]
    assert b.of(trace.PeerEnded) == [trace.PeerEnded("OK", "closed by the other end")]
    assert isinstance(a.records[-1][2], trace.PeerEnded)
    assert {peer for _, peer, _ in a.records} == {core.number}
    times = [now for now, _, _ in a.records]
    assert times == sorted(times)
    assert times[0] >= 100, "times are virtual"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trace__the_same_seed_gives_the_same_trace_and_tracing_changes_nothing(seed: int) -> None:
    first, second = transfer(seed), transfer(seed)
    assert first[1].records == second[1].records
    assert first[2].records == second[2].records
    untraced = Network(seed=seed, shape=LOSSY)
    number, _ = untraced.connect()
    untraced.a.core.post(number, WorkRequest(request=41, payload_offset=0, length=4 * MIB))
    untraced.run(until=lambda: bool(completed(untraced.a)), seconds=20)
    untraced.a.core.close(number, now=untraced.now)
    untraced.run(seconds=2)
    assert untraced.wire_packets == first[0].wire_packets


def test_paths__a_blackhole_is_traced_path_by_path() -> None:
    network, a, _, number = traced(5)
    core = network.a.core.peer(number)
    network.carry_while_links_die(number, length=16 * MIB, links={1})
    network.run(seconds=0.2)  # the dead paths' probes go unanswered
    changes = a.of(trace.PathStateChanged)
    assert changes, "no path ever timed out"
    for path in core.sender.paths:
        states = ["active" if path.index < network.config.paths else "reserve"]
        for change in changes:
            if change.path == path.index:
                assert change.old == states[-1]
                states.append(change.new)
        assert states[-1] == path.state.name.lower()
        probes = sum(probe.path == path.index for probe in a.of(trace.ProbeSent))
        assert probes >= states.count("suspect")
    assert "quarantined" in {change.new for change in changes}
    assert {loss.trigger for loss in a.of(trace.PacketsLost)} == {"timeout"}


def number_of(event: trace.BurstSent | trace.DataReceived | trace.PacketsLost) -> int:
    return trace.packet_number(event.path, event.path_sequence)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_acked__every_burst_is_acknowledged_once_or_lost(seed: int) -> None:
    _, a, _, core, _ = transfer(seed)
    sent = {number_of(burst): burst for burst in a.of(trace.BurstSent)}
    assert len(sent) == len(a.of(trace.BurstSent)), "a number is of one burst"
    acked = [number for ack in a.of(trace.AckReceived) for number in ack.acked]
    lost = {number_of(loss) for loss in a.of(trace.PacketsLost)}
    assert len(set(acked)) == len(acked)
    assert {*acked} | lost == {*sent}
    assert not {*acked} & lost
    assert lost
    assert core.trace is not None
    assert not core.trace._sent
    assert not core.trace._resent


def test_acked__both_ends_number_packets_alike() -> None:
    _, a, b, _, _ = transfer(2)
    sent = {
        trace.packet_number(burst.path, burst.path_sequence + index)
        for burst in a.of(trace.BurstSent)
        for index in range(burst.packets)
    }
    arrived = {number_of(run) for run in b.of(trace.DataReceived)}
    assert arrived <= sent
    assert {number for ack in b.of(trace.AckSent) for number in ack.acked} == arrived


def test_loss__one_packet_in_fifty_is_reordered() -> None:
    _, a, _, _, _ = transfer(1)
    triggers = [loss.trigger for loss in a.of(trace.PacketsLost)]
    assert triggers.count("reordering") > len(triggers) / 2


def test_window__a_timeout_of_all_paths_is_traced() -> None:
    network, a, _, number = traced(6)
    network.carry_while_links_die(number, length=16 * MIB, links=range(4))
    changes = [change for change in a.of(trace.MetricsUpdated) if change.trigger == "timeout"]
    after_acks = [change for change in a.of(trace.MetricsUpdated) if change.trigger == "ack"]
    assert changes[-1].cwnd_bytes == 2 * 8972
    assert changes[-1].cwnd_bytes < after_acks[-1].cwnd_bytes
    assert [event.status for event in a.of(trace.RequestCompleted)] == ["LOCAL_ERROR_UNRESP_REMOTE"]
    (end,) = a.of(trace.PeerEnded)
    assert end.status == Status.LOCAL_ERROR_UNRESP_REMOTE.name
    assert end.reason.startswith("no packet for ")


def test_request__its_latency_is_from_posting_to_end() -> None:
    network, a, _, _, _ = transfer(1, shape=Shape(delay_us=500))
    (posted,), (done,) = a.of(trace.RequestPosted), a.of(trace.RequestCompleted)
    assert posted == trace.RequestPosted(41, "send", 0, 4 * MIB)
    times = {type(event): now for now, _, event in a.records}
    assert done.latency_us == pytest.approx((times[trace.RequestCompleted] - times[trace.RequestPosted]) * 1e6, abs=0.1)
    assert done.latency_us > 1000, "a round trip at least"
    assert completed(network.a)


def test_request__cancelled_at_once_has_no_latency() -> None:
    network, a, _, number = traced(1)
    network.a.core.post(number, WorkRequest(request=3, length=100))
    network.a.core.cancel(number, request=3, now=network.now)
    network.run(seconds=0.1)
    assert a.of(trace.RequestCompleted) == [trace.RequestCompleted(3, "FLUSHED", 0.0)]
    assert not a.of(trace.RequestPosted)


def test_rdma__writes_and_reads_are_traced_at_both_ends() -> None:
    network, a, b, number = traced(2)
    network.b.keys.ranges[7] = (0, 100_000, "rw")
    network.a.keys.ranges[8] = (0, 100_000, "l")
    post = network.a.core.post
    post(number, WorkRequest(request=1, length=50_000, opcode=Opcode.WRITE, key=7))
    post(number, WorkRequest(request=2, length=60_000, opcode=Opcode.WRITE, key=7, immediate=5))
    post(number, WorkRequest(request=3, length=70_000, opcode=Opcode.READ, key=7, local_key=8))
    network.run(until=lambda: len(completed(network.a)) == 3, seconds=5)
    assert [(event.kind, event.length_bytes) for event in a.of(trace.RequestPosted)] == [
        ("write", 50_000), ("write", 60_000), ("read", 70_000),
    ]  # fmt: skip
    assert {event.request for event in a.of(trace.RequestCompleted) if event.latency_us > 999} == {1, 2, 3}
    assert sorted((event.length_bytes, event.immediate) for event in b.of(trace.WriteReceived)) == [
        (50_000, False), (60_000, True),
    ]  # fmt: skip
    sent = {kind: sum(e.payload_bytes for e in a.of(trace.BurstSent) if e.kind == kind) for kind in ("write", "read")}
    assert sent == {"write": 110_000, "read": 0}
    answers = [event for event in b.of(trace.BurstSent) if event.kind == "response"]
    assert sum(event.payload_bytes for event in answers) == 70_000
    assert sum(e.payload_bytes for e in a.of(trace.DataReceived) if e.kind == "response") == 70_000


def test_message_aborted__is_traced_at_both_ends() -> None:
    network, a, b, number = traced(3, shape=Shape(delay_us=500, rate_bps=50_000_000, limit_packets=60))
    (at_b,) = network.b.core.open_peers
    receiver = network.b.core.peer(at_b).receiver
    network.a.core.post(number, WorkRequest(request=1, length=8 * MIB))
    network.run(until=lambda: receiver.landed_bytes > MIB, seconds=5)
    landed = receiver.landed_bytes
    network.a.core.cancel(number, request=1, now=network.now)
    network.run(until=lambda: bool(b.of(trace.MessageAborted)), seconds=5)
    (voided,) = b.of(trace.MessageAborted)
    assert (voided.message, voided.kind) == (0, "send")
    assert voided.freed_bytes >= landed
    assert [event.status for event in a.of(trace.RequestCompleted)] == ["FLUSHED"]
    for kind, events in (("sent", a.of(trace.BurstSent)), ("received", b.of(trace.DataReceived))):
        assert any(event.kind == "aborted" and not event.payload_bytes for event in events), kind


def test_message_discarded() -> None:
    kept = ListSink()
    PeerTrace(kept, number=3).message_discarded(
        7, opcode=Opcode.SEND, released=[Extent(0, 10, 100), Extent(100, 500, 20)], now=1.0
    )
    assert kept.records == [(1.0, 3, trace.MessageAborted(7, "send", 120))]


def test_window__is_traced_only_when_it_changes() -> None:
    kept = ListSink()
    peer = PeerTrace(kept, number=3)
    steps = ((1000.2, "loss"), (1000.4, "loss"), (500.0, "timeout"), (500.0, "loss"), (500, "ack"))
    for window_bytes, trigger in steps:
        peer.metrics(window_bytes, inflight_bytes=300, rtt_s=0.001, trigger=trigger, now=1.0)
    assert [event for _, _, event in kept.records] == [
        trace.MetricsUpdated(1000, 300, 1000.0, "loss"),
        trace.MetricsUpdated(500, 300, 1000.0, "timeout"),
        trace.MetricsUpdated(500, 300, 1000.0, "ack"),
    ]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("192.0.2.1", 19870), "192.0.2.1:19870"),
        (("fe80::1", 19870, 0, 2), "[fe80::1]:19870"),
        ("b:0", "b:0"),
    ],
)
def test_address__as_text(address: object, text: str) -> None:
    kept = ListSink()
    PeerTrace(kept, number=0).event(PeerOpened(0, address, incoming=True), datagram_bytes=1472, paths=8, now=2.0)
    assert kept.records == [(2.0, 0, trace.PeerOpened(text, incoming=True, datagram_bytes=1472, paths=8))]
