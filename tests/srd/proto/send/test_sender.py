"""Transfers over networks that lose, duplicate, reorder and fail: every byte arrives, once, and every request ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.congestion.limits import CWND_LIMITED_RTTS
from srd.proto.paths.path import PathState
from srd.proto.send.sender import Sender
from srd.proto.wire.control import Ack, Datagram, PathReport
from srd.proto.wire.data import HEADER_BYTES, MAX_BURST_PACKETS, Burst
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Conditions, Network, Node, completed, connected, content, ended, received
from tests.srd.proto.congestion.fixed import Fixed

SEEDS = [1, 2, 3]
SEGMENT = 8972 - HEADER_BYTES
MIB = 1 << 20


def sender_of(network: Network, number: int) -> Sender:
    return network.a.core.peer(number).sender


def on_burst(network: Network, note: Callable[[Burst], object]) -> None:
    """Have `note` called with each burst that a sends."""

    def spy(node: Node, out: Burst | Datagram) -> None:
        if node is network.a and isinstance(out, Burst):
            note(out)

    network.on_sent = spy


def handle_report(sender: Sender, *, last: int, now: float, age_us: int = 1000, received: int = 0, ce: int = 0) -> None:
    """Have path 3 reported by an ack of nothing: its last packet was sent so long ago."""
    report = PathReport(3, last, int(now * 1e6) - age_us & 0xFFFFFFFF, 0, received, 0, ce)
    sender.handle_ack(Ack(sender._context, 0, 0, 0, 0, (report,)), now=now, received_at=now)


def transfer(network: Network, *lengths: int, seconds: float = 20.0) -> int:
    """Send messages of these lengths and different bytes; check that each arrives once and unchanged."""
    number, _ = network.connect()
    offsets = [sum(lengths[:index]) + 13 * index for index in range(len(lengths))]
    for index, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        network.a.core.post(
            number, WorkRequest(request=1000 + index, payload_offset=offset, length=length, immediate=index)
        )
    network.run(until=lambda: len(completed(network.a)) == len(lengths), seconds=seconds)
    assert sorted((c.request, c.status) for c in completed(network.a)) == [
        (1000 + index, Status.OK) for index in range(len(lengths))
    ]
    messages = {message.immediate: message for message in received(network.b)}
    assert messages.keys() == set(range(len(lengths)))
    assert len(received(network.b)) == len(lengths), "at most once"
    for index, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        assert messages[index].length == length
        assert content(network.b, messages[index].extents) == network.a.region[offset : offset + length].tobytes()
    assert not ended(network.a)
    return number


# -- lengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 7 * SEGMENT, 64 * SEGMENT + 1, 3 * MIB])
def test_post__length(length: int) -> None:
    transfer(Network(seed=1), length)


# -- bad networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_transfer__without_loss_no_retransmission(seed: int) -> None:
    network = Network(seed=seed)
    number = transfer(network, 4 * MIB)
    sender = sender_of(network, number)
    assert (sender.retransmitted, sender.packets) == (0, -(-4 * MIB // SEGMENT))
    assert network.b.core.peer(0).receiver.duplicates == 0


@pytest.mark.compiled
@pytest.mark.parametrize("seed", SEEDS)
def test_transfer__everything_at_once(seed: int) -> None:
    shape = Shape(delay_us=500, jitter_us=200, loss_percent=5, rate_bps=100_000_000, limit_packets=40)
    network = Network(
        seed=seed, shape=shape, conditions=Conditions(duplicate=0.05, reorder_s=0.002), datagram_bytes=1472
    )
    transfer(network, MIB, 0, MIB, 1, 100_000)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", SEEDS)
def test_transfer__one_link_blackholed_in_the_middle(seed: int) -> None:
    network, number, at_b = connected(seed=seed, shape=Shape(delay_us=500, rate_bps=250_000_000, limit_packets=60))
    receiver = network.b.core.peer(at_b).receiver
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=12 * MIB))
    network.run(until=lambda: receiver.landed_bytes > 4 * MIB, seconds=5)
    sender = sender_of(network, number)
    landings = [(network.now, receiver.landed_bytes)]

    def is_done() -> bool:
        if receiver.landed_bytes != landings[-1][1]:
            landings.append((network.now, receiver.landed_bytes))
        return bool(completed(network.a))

    before = {path.index: path.counters.packets for path in sender.paths}
    network.dead = {0}
    network.run(until=is_done, seconds=5)
    assert [c.status for c in completed(network.a)] == [Status.OK]
    (message,) = received(network.b)
    assert content(network.b, message.extents) == network.a.region[: 12 * MIB].tobytes()
    assert max(after - before for (before, _), (after, _) in pairwise(landings)) < 0.1
    used = [path for path in sender.paths if path.counters.packets > before.get(path.index, 0)]
    silent = [path for path in used if network.hash["a", path.index] == 0]
    assert silent
    assert all(path.state is not PathState.ACTIVE for path in silent), "each that was used since"


@pytest.mark.parametrize("seed", SEEDS)
def test_retransmit__on_another_path(seed: int) -> None:
    """Each retransmission of a PSN takes another path than the transmission before."""
    network = Network(seed=seed, shape=Shape(delay_us=500, loss_percent=5))
    last_path: dict[int, int] = {}
    again: Counter[bool] = Counter()

    def note(out: Burst) -> None:
        for psn in range(out.psn, out.psn + out.count):
            if psn in last_path:
                again[last_path[psn] != out.path] += 1
            last_path[psn] = out.path

    on_burst(network, note)
    transfer(network, 4 * MIB)
    assert again[True] > 10
    assert again[False] == 0


# -- bursts ---------------------------------------------------------------------------------------------------------


def test_poll_burst__is_within_the_agreed_limits() -> None:
    network, number, _ = connected(datagram_bytes=1472)
    network.a.core.post(number, WorkRequest(request=1, payload_offset=77, length=3 * MIB + 5))
    bursts: list[Burst] = []

    on_burst(network, bursts.append)
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    sequences: dict[int, int] = {}
    for burst in bursts:
        assert 1 <= burst.count <= MAX_BURST_PACKETS
        assert burst.segment_bytes == 1472 - HEADER_BYTES
        assert (burst.count - 1) * burst.segment_bytes < burst.payload_bytes <= burst.count * burst.segment_bytes
        assert burst.payload_offset == 77 + burst.offset
        assert burst.path_sequence >= sequences.get(burst.path, 0), "a path's sequence never decreases"
        sequences[burst.path] = burst.path_sequence + burst.count
    assert max(burst.count for burst in bursts) > 4, "bursts, not packets"
    psns = sorted(psn for burst in bursts for psn in range(burst.psn, burst.psn + burst.count))
    assert psns == list(range(len(psns)))


def most_in_flight(network: Network, *, length: int) -> tuple[Sender, int]:
    """Send one message; return its sender, and the most that was in flight when a burst was sent."""
    number, _ = network.connect()
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=length))
    sender, seen = sender_of(network, number), list[int]()

    on_burst(network, lambda out: seen.append(sender.inflight_bytes - out.count * (HEADER_BYTES + out.segment_bytes)))
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    assert completed(network.a)
    return sender, max(seen)


def test_poll_burst__inflight_limit_applies_and_the_window_does_not_grow() -> None:
    """1 ms and 100 Mbit/s, where a queue of 100 ms is accepted: the bandwidth-delay product is 12 kB."""
    least_bytes = 256 << 10
    config = ProtocolConfig(min_inflight_limit_bytes=least_bytes, min_delay_target_s=0.1)
    network = Network(seed=1, shape=Shape(delay_us=500, rate_bps=25_000_000), config=config)
    sender, most_bytes = most_in_flight(network, length=12 * MIB)
    assert least_bytes / 2 < most_bytes < least_bytes
    # It grows to the limit and for CWND_LIMITED_RTTS more, while the whole transfer is 12 MiB.
    assert least_bytes < sender.controller.window_bytes < (CWND_LIMITED_RTTS + 8) * least_bytes < 12 * MIB


@pytest.mark.compiled
def test_poll_burst__as_much_in_flight_as_a_long_path_holds() -> None:
    """100 ms and 400 Mbit/s: 5 MB are in flight, though less may queue in hosts."""
    config = ProtocolConfig(
        min_inflight_limit_bytes=256 << 10, receive_window_bytes=128 * MIB, max_message_bytes=32 * MIB
    )
    shape = Shape(delay_us=50_000, rate_bps=100_000_000, limit_packets=10_000)
    sender, most_bytes = most_in_flight(Network(seed=1, shape=shape, config=config), length=24 * MIB)
    assert 5e6 < most_bytes < 2.2 * 5e6
    assert sender.controller.window_bytes < 2.4 * 5e6, "the window does not grow while the in-flight limit applies"


def test_window__an_ack_covers_all_of_it() -> None:
    """Otherwise packets beyond the bitmap are declared lost while the window's first packet is missing."""
    config = ProtocolConfig(window_packets=65_536, controller=Fixed, initial_window_packets=5000)
    network, number, at_b = connected(shape=Shape(delay_us=20_000), config=config, datagram_bytes=576)
    sender, receiver = sender_of(network, number), network.b.core.peer(at_b).receiver
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=4 * MIB))
    lost = list[int]()

    def lose_the_first(_: Node, out: Burst | Datagram) -> bool:
        if is_lost := isinstance(out, Burst) and not lost:
            lost.append(out.count)
        return is_lost

    network.on_sent = lose_the_first
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    assert sender.retransmitted == sum(lost)
    assert receiver.duplicates == 0


def test_poll_timeout__pacing_alone_wakes_the_sender() -> None:
    """In the first round trip no ACK does, and nothing else is due."""
    network, number, _ = connected(shape=Shape(delay_us=20_000), config=ProtocolConfig(initial_window_packets=64))
    opened_at, sent_at = network.now, list[float]()

    on_burst(network, lambda _: sent_at.append(network.now - opened_at))
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=64 * SEGMENT))
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    before_an_ack = {at for at in sent_at if at < 0.04}
    assert len(before_an_ack) > 4, "bursts, one after the other, instead of one at first and the rest with the ACK"
    assert max(before_an_ack) > 0.005


def test_poll_burst__long_when_the_processor_is_the_limit() -> None:
    network, number, _ = connected()
    sender = sender_of(network, number)
    sender.on_handshake_rtt(0.00001, now=network.now)
    sender.controller.window_bytes = 10.0 * sender.segment_bytes + 10 * HEADER_BYTES
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=MIB))
    first = sender.poll_burst(now=network.now)
    later = sender.poll_burst(now=network.now + 0.01)  # a thousand round trips, in which it could have sent
    assert first is not None
    assert later is not None
    assert (first.count, later.count) == (1, 7), "one packet with a small window; then a whole message"


@pytest.mark.parametrize(
    ("waits_s", "is_limited", "count"), [(None, False, 1), (0.0, False, 1), (0.00005, False, 8), (0.00005, True, 1)]
)
def test_poll_burst__of_an_unlimited_sender_takes_as_long_as_packets_wait_at_the_receiver(
    waits_s: float | None,
    is_limited: bool,  # noqa: FBT001 - a case
    count: int,
) -> None:
    """A window of 16 packets, 0.1 ms: what is sent at once is one packet, or a message of 8, with its last."""
    network, number, _ = connected()
    sender, now = sender_of(network, number), network.now + 1
    sender.on_handshake_rtt(0.0001, now=now)
    sender.controller.window_bytes = 16.0 * (SEGMENT + HEADER_BYTES)
    if waits_s is not None:
        sender._min_ack_delay.observe(waits_s, now=now)
    if is_limited:
        sender._send_limit.on_limited(now)
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=7 * SEGMENT + 1))
    burst = sender.poll_burst(now=now)
    assert burst is not None
    assert burst.count == count


@pytest.mark.parametrize(("length", "is_exchange"), [(100, True), (SEGMENT, True), (SEGMENT + 1, False)])
def test_poll_burst__notes_an_exchange_of_short_messages(length: int, is_exchange: bool) -> None:  # noqa: FBT001 - a case
    network, number, _ = connected()
    sender = sender_of(network, number)
    for request in (1, 2):
        network.a.core.post(number, WorkRequest(request=request, payload_offset=0, length=length))
        network.run(until=lambda: sender.idle, seconds=1)
    assert network.a.core._shared.active_peers.is_exchanging(network.now) is is_exchange


@pytest.mark.compiled
@pytest.mark.parametrize("seed", SEEDS)
def test_poll_burst__sprays_over_all_paths(seed: int) -> None:
    network = Network(seed=seed, shape=Shape(delay_us=500, rate_bps=250_000_000, limit_packets=60))
    number = transfer(network, 12 * MIB)
    shares: Counter[int] = Counter()
    for path in sender_of(network, number).paths:
        shares[network.hash["a", path.index]] += path.counters.packets
    total = sum(shares.values())
    assert all(0.15 < shares[link] / total < 0.35 for link in range(4)), shares


@pytest.mark.sources
def test_handle_ack__counts_marks_and_reports_their_share_to_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    network, number, _ = connected()
    sender, samples = sender_of(network, number), list[float]()
    monkeypatch.setattr(sender.controller, "on_sample", lambda **sample: samples.append(sample["ecn_fraction"]))
    sender._table.open_all()
    path, now = sender.paths[3], network.now
    for last, marked in ((3, 0), (7, 1), (9, 0xFFFF), (10, 2), (11, 2)):
        path.next_sequence = last + 1
        handle_report(sender, last=last, now=now, received=last + 1, ce=marked)
    assert samples == [0.0, 0.25, 1.0, 1.0, 0.0], "at most 1, and 16 bits wrap"
    assert path.counters.ecn_ce == (1 << 16) + 2


# -- reports to the controller ------------------------------------------------------------------------------------


@pytest.mark.sources
def test_on_handshake_rtt__is_the_base_of_all_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new peer must not count a standing queue of other peers as propagation delay."""
    network, number, _ = connected(shape=Shape(delay_us=500))
    sender, samples = sender_of(network, number), list[tuple[float, float]]()
    monkeypatch.setattr(
        sender.controller, "on_sample", lambda **sample: samples.append((sample["queue_s"], sample["min_rtt_s"]))
    )
    assert sender.rtt_s == pytest.approx(0.001, rel=0.01)
    sender._table.open_all()
    path, now = sender.paths[3], network.now
    path.next_sequence = 1
    handle_report(sender, last=0, now=now, age_us=1900, received=1)
    ((queue_s, base_s),) = samples
    assert queue_s == pytest.approx(0.0009, rel=0.01)
    assert base_s == pytest.approx(0.001, rel=0.01)


@pytest.mark.sources
def test_handle_ack__of_a_probe_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    network, number, _ = connected()
    sender, samples = sender_of(network, number), list[float]()
    monkeypatch.setattr(sender.controller, "on_sample", lambda **sample: samples.append(sample["queue_s"]))
    sender._table.open_all()
    path, now = sender.paths[3], network.now
    for _ in range(2):
        path.allocate_probe_sequence()
        path.allocate_sequences(1)
    for last in range(4):
        handle_report(sender, last=last, now=now, age_us=1000 * (last + 1), received=last + 1)
    assert len(samples) == 2
    assert path.rtt.latest_s == pytest.approx(0.004, rel=0.01)


@pytest.mark.parametrize(("sequence", "state"), [(0, PathState.ACTIVE), (7, PathState.ACTIVE), (8, PathState.SUSPECT)])
def test_handle_ack__of_a_packet_that_was_declared_lost_shows_that_its_size_passes(
    sequence: int, state: PathState
) -> None:
    """The path sent eight packets of full size and a short one, and timed out: its MTU is suspected."""
    network, number, _ = connected()
    sender, now = sender_of(network, number), network.now
    sender._table.open_all()
    path = sender.paths[3]
    path.allocate_sequences(9)
    for losses in (path.size_losses, sender._rack.black_hole):
        losses.on_lost(8, size_bytes=8972)
    path.size_losses.on_gone(0, count=8)
    sender._table.on_timeout(path, now=now)
    handle_report(sender, last=sequence, now=now)
    assert path.state is state
    assert sender._rack.lost_in_row == (8 if state is PathState.SUSPECT else 0)


@pytest.mark.sources
@pytest.mark.parametrize("seed", SEEDS)
def test_on_spurious_loss__restores_the_window(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For 8 ms three of four links have 30 ms more delay: most of the window is declared lost, and arrives twice."""
    shape = Shape(delay_us=500, rate_bps=250_000_000, limit_packets=60)
    network, number, _ = connected(seed=seed, shape=shape)
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=12 * MIB))
    control = sender_of(network, number).controller
    network.run(seconds=0.05)
    before_bytes, undone, undo = control.window_bytes, list[tuple[float, float]](), control.on_spurious_loss

    def spy() -> None:
        given_up_bytes = control.window_bytes
        undo()
        undone.append((given_up_bytes, control.window_bytes))

    monkeypatch.setattr(control, "on_spurious_loss", spy)
    for shape_then, seconds in ((replace(shape, delay_us=30_500), 0.008), (shape, 0.04)):
        for link in range(3):
            network.links["a", link].reshape(shape_then)
        network.run(seconds=seconds)
    assert network.b.core.peer(0).receiver.duplicates > 20
    assert any(1.6 * then < now and 0.6 * before_bytes < now for then, now in undone), undone
