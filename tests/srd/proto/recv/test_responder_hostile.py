"""Peers that break the rules where `Destinations` decide: what they can make this end keep, and what ends them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.events import MessageReceived, MessagesReceived
from srd.proto.wire.control import Ack, Control, Nack
from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE, Burst, GroDatagram, Opcode, write_headers
from srd.proto.wire.status import Status
from tests.simulation import Network, ended
from tests.srd.proto.byhand import answers, data_packet, opened_by_hand
from tests.srd.proto.recording_destinations import RNR, RecordingDestinations, reported

SEGMENT = 1472 - HEADER_BYTES


class Attack:
    """A peer at b, opened by hand, whose packets are crafted."""

    def __init__(self, destinations: RecordingDestinations, **config: Any) -> None:
        self.network = Network(seed=1, config=ProtocolConfig(**config), destinations={"b": destinations})
        self.destinations = destinations
        self.context = opened_by_hand(self.network).own_context
        (peer,) = self.network.b.core._peers.values()
        self.receiver = peer.receiver
        self.network.b.keys.ranges |= {1: (0, 10_000, "w"), 2: (0, 10_000, "w")}

    @property
    def discarded(self) -> int:
        """Refused messages that are remembered."""
        return len(self.receiver._discarded or ())

    def give(self, *arrivals: GroDatagram) -> list[Control]:
        """Have b process packets together; return what it answers."""
        self.network.b.core.handle_packets(arrivals, controls=[], now=self.network.now)
        return answers(self.network.b, now=self.network.now)

    def packet(self, **fields: Any) -> GroDatagram:
        return data_packet(self.context, **fields)

    def batch(self, first: int, count: int, *, psn: int | None = None, length: int = 10, key: int = 7) -> GroDatagram:
        """Messages of one packet each, which arrive as one segment train."""
        psn = first if psn is None else psn
        places = np.zeros(count, np.uint64)
        size_bytes = count * length
        burst = Burst(
            "", 0, psn, self.context, psn, count, 0, first, length, 0, 0, key, 0, size_bytes, length, 0, places
        )
        headers = memoryview(bytearray(count * HEADER_BYTES))
        write_headers(burst, out=headers)
        return GroDatagram(headers, count, 1000, size_bytes, length, "x:0", self.network.now)

    def end(self) -> str:
        """Return why the peer has ended; empty: it has not."""
        self.network.run(seconds=0.001)
        return "".join(f"{end.status.value}: {end.reason}" for end in ended(self.network.b))


def takes_none() -> RecordingDestinations:
    return RecordingDestinations(lambda _key, _count: RNR)


# -- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, IMMEDIATE, Opcode.WRITE, Opcode.WRITE | IMMEDIATE])
def test_key__a_message_with_two_ends_the_peer(flags: int) -> None:
    attack = Attack(RecordingDestinations())
    for index in range(2):
        fields = {"psn": index, "length": 2 * SEGMENT, "offset": index * SEGMENT, "flags": flags, "key": 1 + index}
        if flags == Opcode.WRITE:  # without an immediate it carries its start: 0
            fields["offset"] = index * SEGMENT
        attack.give(attack.packet(**fields))
    assert attack.end() == "8: message 0 is announced with two keys"
    assert reported(attack.network.b) == {}


def test_key__an_aborted_packet_with_another_one() -> None:
    attack = Attack(RecordingDestinations())
    attack.give(attack.packet(length=2 * SEGMENT, key=1))
    attack.give(attack.packet(psn=1, length=2 * SEGMENT, offset=2, key=2, flags=ABORTED, payload_bytes=0))
    assert attack.end() == "8: message 0 is announced with two keys"


def test_key__an_aborted_packet_of_a_refused_message_with_another_one() -> None:
    attack = Attack(takes_none())
    attack.give(attack.packet(length=2 * SEGMENT, key=1))
    attack.give(attack.packet(psn=1, length=2 * SEGMENT, offset=2, key=2, flags=ABORTED, payload_bytes=0))
    assert attack.end() == "8: message 0 is announced with two keys"


# -- what is remembered ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "messages", "writes", "batches"])
def test_refused__takes_credit_so_that_what_is_remembered_is_bounded(kind: str) -> None:
    attack = Attack(takes_none(), receive_window_messages=20, receive_window_bytes=200_000, max_message_bytes=200_000)
    for number in range(30):
        if kind == "bytes":
            arrival = attack.packet(psn=number, path_sequence=number, message=number, length=20_000)
        elif kind == "messages":
            arrival = attack.packet(psn=number, path_sequence=number, message=number, length=0)
        elif kind == "writes":
            flags = Opcode.WRITE | IMMEDIATE
            arrival = attack.packet(psn=number, path_sequence=number, message=number, length=9, flags=flags, key=1)
        else:
            arrival = attack.batch(10 * number, 10)
        attack.give(arrival)
        if attack.end():
            break
    most = 10 if kind == "bytes" else 20
    assert most < attack.discarded <= most + 10, "by a burst more"
    assert attack.end().startswith("8: began ")


def test_refused__the_credit_comes_back_with_the_abort() -> None:
    """A peer that turns what was refused ABORTED may go on for ever."""
    attack = Attack(takes_none(), receive_window_messages=20)
    for number in range(100):
        nack, *_ = attack.give(attack.packet(psn=number, path_sequence=2 * number, message=number, length=100, key=7))
        assert nack == Nack(77, number, RNR)
        assert attack.discarded == 1
        fields: dict[str, Any] = {"flags": ABORTED, "offset": number + 1, "payload_bytes": 0, "key": 7}
        attack.give(attack.packet(psn=number, path_sequence=2 * number + 1, message=number, length=100, **fields))
        assert attack.discarded == 0
    assert not attack.end()
    assert attack.destinations.refused == {7: 100}


def test_refused__a_copy_that_arrives_after_the_abort_starts_nothing() -> None:
    destinations = RecordingDestinations(lambda _key, _count: RNR if len(destinations.asked) == 1 else None)
    attack = Attack(destinations)
    late = [attack.packet(psn=psn, path_sequence=psn, length=3 * SEGMENT, offset=psn * SEGMENT) for psn in range(3)]
    attack.give(late[0])
    abort = {"length": 3 * SEGMENT, "offset": 3, "flags": ABORTED, "payload_bytes": 0}
    attack.give(attack.packet(psn=1, path_sequence=3, **abort))
    attack.give(*late)
    assert len(destinations.asked) == 1
    assert reported(attack.network.b) == {}
    out = attack.give(attack.packet(psn=3, path_sequence=4, message=1))
    assert [packet.cumulative for packet in out if isinstance(packet, Ack)] == [4]
    assert len(destinations.asked) == 2


def test_refused__no_packet_is_acknowledged_until_it_is_aborted() -> None:
    attack = Attack(takes_none())
    for _ in range(3):
        out = attack.give(*(attack.packet(psn=psn, path_sequence=psn, message=psn) for psn in range(5)))
        assert {packet.message for packet in out if isinstance(packet, Nack)} == set(range(5))
        assert {(packet.cumulative, packet.bitmap) for packet in out if isinstance(packet, Ack)} == {(0, 0)}
    assert len(attack.destinations.asked) == 5


# -- packets that nobody may be asked about -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"psn": 1 << 20},
        {"path": 200},
        {"length": 5000, "payload_bytes": 10},
        {"length": 5000, "offset": 1},
        {"flags": 16},
    ],
    ids=str,
)
def test_admit__is_not_called_for_packets_that_are_dropped(fields: dict[str, Any]) -> None:
    attack = Attack(RecordingDestinations())
    attack.give(attack.packet(**fields))
    assert attack.destinations.asked == []
    assert reported(attack.network.b) == {}


@pytest.mark.parametrize("fields", [{"psn": 1 << 20}, {"path": 200}], ids=str)
def test_admit_write__is_not_called_for_packets_that_are_dropped(fields: dict[str, Any]) -> None:
    attack = Attack(RecordingDestinations())
    attack.give(attack.packet(flags=Opcode.WRITE | IMMEDIATE, key=1, **fields))
    assert attack.destinations.asked == []
    assert reported(attack.network.b) == {}


def test_admit_write__is_not_called_for_a_message_that_was_aborted() -> None:
    attack = Attack(RecordingDestinations())
    write = {"flags": Opcode.WRITE | IMMEDIATE, "key": 1, "length": 2 * SEGMENT}
    attack.give(attack.packet(psn=1, **(write | {"flags": write["flags"] | ABORTED, "offset": 2, "payload_bytes": 0})))
    attack.give(attack.packet(psn=0, path_sequence=1, **write))
    assert attack.destinations.asked == []


# -- batches --------------------------------------------------------------------------------------------------------


def test_batch__of_more_than_the_longest_message_is_refused_singly() -> None:
    attack = Attack(RecordingDestinations(), max_message_bytes=9)
    out = attack.give(attack.batch(0, 8))
    assert {packet for packet in out if isinstance(packet, Nack)} == {
        Nack(77, number, Status.REMOTE_ERROR_BAD_LENGTH) for number in range(8)
    }
    assert attack.destinations.asked == []


def test_batch__of_duplicates_asks_nobody() -> None:
    attack = Attack(RecordingDestinations())
    for _ in range(3):
        attack.give(attack.batch(0, 8))
    attack.give(attack.batch(1 << 20, 8))
    assert attack.destinations.asked == [(7, 0, 10, 8)]


def test_batch__asks_for_those_that_are_new() -> None:
    attack = Attack(RecordingDestinations())
    attack.give(attack.batch(3, 2))
    attack.give(attack.batch(0, 8))
    assert [count for *_, count in attack.destinations.asked] == [2, 6]
    attack.network.run(seconds=0.001)
    events = [event for event in attack.network.b.events if isinstance(event, MessagesReceived)]
    assert [(event.message, event.count) for event in events] == [(3, 2), (0, 3), (5, 3)]


def test_batch__with_a_message_that_was_refused_before() -> None:
    """It stays refused, though the destinations would take all of them now."""
    attack = Attack(RecordingDestinations(lambda _key, _count: RNR if len(attack.destinations.asked) == 1 else None))
    attack.give(attack.packet(psn=2, message=2, length=10, key=7))
    out = attack.give(attack.batch(0, 8))
    assert [packet for packet in out if isinstance(packet, Nack)] == [Nack(77, 2, RNR)]
    attack.network.run(seconds=0.001)
    messages = [event.message for event in attack.network.b.events if isinstance(event, MessageReceived)]
    assert messages == [0, 1, 3, 4, 5, 6, 7]
    places = [e.extents[0].region_offset for e in attack.network.b.events if isinstance(e, MessageReceived)]
    assert places == [1000 + 10 * message for message in messages]


def test_batch__its_numbers_may_wrap_where_a_kernel_joins_two() -> None:
    """Message numbers have 32 bits; a segment train that crosses 2^32 is cut there."""
    attack = Attack(RecordingDestinations(lambda _key, count: RNR if count > 1 else None))
    attack.give(attack.batch(2**32 - 3, 3, psn=0), attack.batch(0, 3, psn=3))
    attack.network.run(seconds=0.001)
    messages = [event.message for event in attack.network.b.events if isinstance(event, MessageReceived)]
    assert messages == [2**32 - 3, 2**32 - 2, 2**32 - 1, 0, 1, 2]
