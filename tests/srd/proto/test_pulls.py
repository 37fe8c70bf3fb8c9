"""Pulls between two cores in virtual time: many and few peers, lost PULLs, a receiver that never grants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.paths.table import PROBE_BUDGET
from srd.proto.wire.control import PullRequest, decode_untrusted
from srd.proto.wire.data import PacketType
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Conditions, Network, Packet, completed, content, received, release

SHAPE = Shape(delay_us=200, rate_bps=1_000_000_000, limit_packets=100)
CONFIG = ProtocolConfig(paths=4, incast_packets=8)
PULLS = (PacketType.PULL_REQUEST, PacketType.PULL)
SIZE = 60_000


def opened(
    peers: int,
    *,
    seed: int = 1,
    shape: Shape = SHAPE,
    conditions: Conditions | None = None,
    config: ProtocolConfig = CONFIG,
) -> Network:
    """Return a network with so many peers from a to b, whose control packets are counted from now on."""
    network = Network(seed=seed, shape=shape, config=config, links=2, conditions=conditions)
    for _ in range(peers):
        network.connect()
    network.run(seconds=0.01)
    network.keeps_carried = True
    return network


def post(network: Network, *, sizes: list[int]) -> None:
    """Post to each peer the messages of these sizes, from distinct places of the region."""
    for peer in network.a.core.open_peers:
        for index, size in enumerate(sizes):
            request = peer * len(sizes) + index
            wr = WorkRequest(request=request, length=size, payload_offset=request * 1001, immediate=request)
            network.a.core.post(peer, wr)


def finish(network: Network, *, messages: int, seconds: float = 20.0) -> None:
    """Run until all messages have arrived, each with its own bytes, and are complete."""
    taken = 0

    def done() -> bool:
        nonlocal taken
        for message in received(network.b)[taken:]:
            start = (message.immediate or 0) * 1001
            assert content(network.b, message.extents) == network.a.region[start : start + message.length].tobytes()
            release(network.b, message, now=network.now)
            taken += 1
        return len(completed(network.a)) == messages

    network.run(until=done, seconds=seconds)
    assert Counter(each.status for each in completed(network.a)) == {Status.OK: messages}
    assert len(received(network.b)) == messages


def kinds(network: Network) -> Counter[PacketType]:
    return Counter(PacketType(packet[0][1]) for _, _, packet in network.carried)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_peers__are_pulled(seed: int) -> None:
    network = opened(40, seed=seed)
    post(network, sizes=[SIZE])
    finish(network, messages=40)
    counted = kinds(network)
    assert counted[PacketType.PULL_REQUEST] >= 40
    assert counted[PacketType.PULL] >= 40
    assert retransmitted(network) < 40 * 7 / 10


def retransmitted(network: Network) -> int:
    senders = [network.a.core.peer(number).sender for number in network.a.core.open_peers]
    return sum(sender.retransmitted for sender in senders)


def test_few_peers__cost_nothing() -> None:
    network = opened(8)
    post(network, sizes=[SIZE, 2_000_000, 10])
    finish(network, messages=24)
    assert not any(kinds(network)[kind] for kind in PULLS)


def test_many_peers__small_messages_are_not_pulled() -> None:
    network = opened(40)
    post(network, sizes=[900])
    finish(network, messages=40)
    assert not any(kinds(network)[kind] for kind in PULLS)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("reorder_s", [0.0, 0.002])
def test_loss__of_any_packet_delays_only(seed: int, reorder_s: float) -> None:
    conditions = Conditions(duplicate=0.05, reorder_s=reorder_s)
    network = opened(
        20, seed=seed, shape=Shape(delay_us=200, rate_bps=1_000_000_000, loss_percent=10), conditions=conditions
    )
    post(network, sizes=[SIZE, 500, 30_000])
    finish(network, messages=60)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("busy_s", "buffer_packets", "turns"), [(0.1, 64, 45), (0.3, 1 << 30, 30)])
def test_slow_host__is_neither_sent_unasked_nor_asked_again_and_again(
    seed: int, busy_s: float, buffer_packets: int, turns: int
) -> None:
    """It takes what has arrived every `busy_s`; 280 packets, eight at a time, need 35 turns of it.

    When senders lost their place, or lost patience and filled its buffer, most packets were sent twice or three times.
    """
    network = opened(40, seed=seed, config=replace(CONFIG, unresponsive_after_s=60))
    network.conditions.busy_s, network.conditions.buffer_packets = busy_s, buffer_packets
    post(network, sizes=[SIZE, 900])
    finish(network, messages=80, seconds=busy_s * turns)
    assert retransmitted(network) < 250


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slow_host__is_not_flooded_with_probes(seed: int) -> None:
    """It takes 32 packets each 0.3 s, and more are lost. Probes of paths, of their standbys above all, filled it.

    So every sender's data was lost, and nothing was complete after 30 s.
    """
    network = opened(20, seed=seed, config=replace(CONFIG, unresponsive_after_s=60))
    network.conditions.busy_s, network.conditions.buffer_packets = 0.3, 32
    probes = 0

    def counts(direction: str, packet: Packet) -> bool:
        nonlocal probes
        probes += direction == "a" and packet[0][1] == PacketType.PROBE
        return False

    network.loses, began_at = counts, network.now
    post(network, sizes=[SIZE, 900])
    finish(network, messages=40, seconds=30)
    assert probes < 20 * (PROBE_BUDGET + 20 * (network.now - began_at))


def test_lost_pull__that_tells_to_ask_is_repeated() -> None:
    """Every first PULL is lost; the senders have no limit, and never ask of themselves."""
    network = opened(8)
    network.loses = lambda _direction, packet: packet[0][1] == PacketType.PULL
    for _ in range(4):
        network.connect()
    network.run(seconds=0.01)
    network.loses = None
    assert kinds(network)[PacketType.PULL] == 0
    for _ in range(20):
        post(network, sizes=[SIZE])
        network.run(seconds=0.1)
        for message in received(network.b):
            release(network.b, message, now=network.now)
        network.b.events.clear()
    senders = [network.a.core.peer(number).sender for number in network.a.core.open_peers]
    assert all(sender.asks for sender in senders)


@pytest.mark.parametrize("lost", PULLS)
def test_receiver_that_never_grants__cannot_stall_a_sender(lost: PacketType) -> None:
    """Every request, or every answer, is lost: a packet goes out now and then all the same."""
    network = opened(20)
    network.loses = lambda _direction, packet: packet[0][1] == lost
    network.a.core.post(3, WorkRequest(request=0, length=SIZE, immediate=0))
    finish(network, messages=1)


def test_late_request__is_for_what_was_lost() -> None:
    """A packet that was pulled is lost: its sender asks for another one."""
    network = opened(20)
    dropped: list[Packet] = []

    def loses(_direction: str, packet: Packet) -> bool:
        if packet[0][1] == PacketType.DATA and packet[1] and not dropped:
            dropped.append(packet)
            return True
        return False

    network.loses = loses
    network.a.core.post(3, WorkRequest(request=0, length=8000, immediate=0))
    finish(network, messages=1)
    requests = [
        packet
        for _, _, (data, _) in network.carried
        if data[1] == PacketType.PULL_REQUEST and isinstance(packet := decode_untrusted(data), PullRequest)
    ]
    assert [(request.sent_bytes, request.backlog_bytes) for request in requests] == [(0, 8056), (8056, 8056)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_short_memory__every_message_arrives(seed: int) -> None:
    """Turns for the memory do not wait for turns to send, and who waits for these is not discarded."""
    network = opened(20, seed=seed)
    network.b.plenty_bytes = 5 * SIZE
    post(network, sizes=[SIZE, SIZE])
    finish(network, messages=40, seconds=60)
