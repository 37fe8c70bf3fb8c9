"""Peers that violate the protocol's rules for registered memory."""

from __future__ import annotations

import pytest

from srd.proto.events import ReceiveResult
from srd.proto.recv.responder import MAX_NACKS
from srd.proto.send.uncredited import MAX_READS
from srd.proto.wire.control import Ack, Nack
from srd.proto.wire.data import HEADER_BYTES, IMMEDIATE, Burst, GroDatagram, Opcode, write_headers
from srd.proto.wire.status import Status
from tests.simulation import Network, ended
from tests.srd.proto.byhand import answers, is_empty, opened_by_hand
from tests.srd.proto.contract import KEY_B, START_B

BAD = Status.REMOTE_ERROR_BAD_ADDRESS


def opened() -> tuple[Network, int]:
    """An attacker's peer at b; return b's context."""
    network = Network(seed=1)
    accept = opened_by_hand(network)
    network.b.keys.ranges[KEY_B] = (START_B, 1000, "rw")
    return network, accept.own_context


def flagged(
    context: int, flags: int, *, psn: int = 0, length: int = 100, key: int = KEY_B, offset: int = 0
) -> GroDatagram:
    """A packet of 100 bytes, a message each."""
    burst = Burst("", 0, psn, context, psn, 1, 0, psn, length, 0, offset, key, 0, 100, 100, flags)
    headers = memoryview(bytearray(HEADER_BYTES))
    write_headers(burst, out=headers)
    return GroDatagram(headers, 1, 0, 100, 100, "x:0", 100.0)


def changes_nothing(network: Network, arrival: GroDatagram) -> bool:
    """Whether a packet changes nothing and gets no answer."""
    result, out = give(network, arrival)
    return is_empty(result) and not out


def give(network: Network, *arrivals: GroDatagram) -> tuple[ReceiveResult, list[object]]:
    result = network.b.core.handle_packets(arrivals, controls=[], now=network.now)
    return result, list(answers(network.b, now=network.now + 1e-3))


def test_handle__refusals_are_bounded() -> None:
    network, context = opened()
    _, out = give(network, *(flagged(context, Opcode.WRITE, psn=psn, key=9) for psn in range(300)))
    assert sum(isinstance(packet, Nack) for packet in out) == MAX_NACKS
    (ack,) = (packet for packet in out if isinstance(packet, Ack))
    assert (ack.cumulative, ack.bitmap) == (0, 0), "no packet is acknowledged"


def test_handle__a_write_of_two_lengths_ends_the_peer() -> None:
    network, context = opened()
    first, second = (flagged(context, Opcode.WRITE, psn=psn, length=2000 + psn) for psn in range(2))
    network.b.keys.ranges[KEY_B] = (START_B, 3000, "rw")
    for write in (first, second):
        write.payload_bytes = write.segment_bytes = 1472 - HEADER_BYTES
    second.headers[28:32] = first.headers[28:32]  # the same message
    give(network, first, second)
    network.run(seconds=0.01)
    assert [end.status for end in ended(network.b)] == [Status.REMOTE_ERROR_ABORT]


def test_handle__more_reads_than_allowed_are_dropped() -> None:
    network, context = opened()
    reads = [flagged(context, Opcode.READ, psn=psn) for psn in range(2 * MAX_READS + 5)]
    for read in reads:
        read.payload_bytes = read.segment_bytes = 0
    network.b.core.handle_packets(reads, controls=[], now=network.now)
    sender = network.b.core.peer(0).sender
    assert sender.queue.responses == 2 * MAX_READS


def test_handle__a_duplicate_of_a_placed_packet_is_no_error_after_deregistration() -> None:
    """Its ack was lost. It is acknowledged again, or a successful write would be reported as refused."""
    network, context = opened()
    write = flagged(context, Opcode.WRITE)
    result, _ = give(network, write)
    assert len(result.copies) == 1
    del network.b.keys.ranges[KEY_B]
    result, out = give(network, write)
    assert not any(isinstance(packet, Nack) for packet in out)
    assert [packet.cumulative for packet in out if isinstance(packet, Ack)] == [1]
    assert is_empty(result)


@pytest.mark.parametrize(
    ("flags", "length", "payload_bytes", "offset", "fits"),
    [
        (Opcode.WRITE, 3000, 1416, 0, True),
        (Opcode.WRITE, 3000, 1416, 1416, True),
        (Opcode.WRITE, 3000, 168, 2832, True),
        (Opcode.WRITE, 3000, 1415, 0, False),
        (Opcode.WRITE, 3000, 1416, 1, False),
        (Opcode.WRITE, 3000, 100, 2832, False),
        (Opcode.WRITE, 3000, 0, 0, False),
        (Opcode.WRITE, 0, 0, 0, True),
        (Opcode.WRITE | IMMEDIATE, 3000, 1416, 7, True),
        (Opcode.WRITE | IMMEDIATE, 3000, 168, 7, True),
        (Opcode.WRITE | IMMEDIATE, 2832, 1416, 7, True),
        (Opcode.WRITE | IMMEDIATE, 3000, 167, 7, False),
        (Opcode.WRITE | IMMEDIATE, 3000, 0, 7, False),
        (Opcode.WRITE | IMMEDIATE, 0, 0, 7, True),
        (Opcode.WRITE | IMMEDIATE, 100, 1416, 7, False),
    ],
)
def test_handle__a_write_must_be_packetized_right(
    flags: int,
    length: int,
    payload_bytes: int,
    offset: int,
    fits: bool,  # noqa: FBT001 - a row of the table
) -> None:
    network, context = opened()
    network.b.keys.ranges[KEY_B] = (START_B, 5000, "rw")
    write = flagged(context, flags, length=length, offset=offset)
    write.payload_bytes = write.segment_bytes = payload_bytes
    result, out = give(network, write)
    assert [packet.cumulative for packet in out if isinstance(packet, Ack)] == ([1] if fits else [])
    assert bool(result.copies) == (fits and payload_bytes > 0)


@pytest.mark.parametrize("flags", [Opcode.SEND, Opcode.WRITE, Opcode.WRITE | IMMEDIATE])
def test_handle__empty_packets_that_each_begin_a_message_leave_no_state(flags: int) -> None:
    network, context = opened()
    for psn in range(5000):
        packet = flagged(context, flags, psn=psn, length=1)
        packet.payload_bytes = packet.segment_bytes = 0
        assert changes_nothing(network, packet)
    assert not network.b.core.peer(0).receiver.incomplete
