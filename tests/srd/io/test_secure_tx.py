"""srd.io.secure_tx over loopback: every burst arrives encrypted and is the one that was added, with GSO and without."""

from __future__ import annotations

import random
import socket
import time

import numpy as np
import pytest

from srd.io.tx import PACKETS
from srd.proto.wire.data import HEADER_BYTES, IMMEDIATE, Burst
from srd.proto.wire.protected import STAGE_BYTES, TAG_BYTES
from srd.secure.session import Session
from tests.changed import changed
from tests.srd.io.exchange import Receiver, Source, content, source
from tests.srd.io.test_tx import FAMILIES, SHAPES, refuse_segmentation
from tests.srd.secure.sessions import CONTEXT, pair

SEED = 13


def received(sock: socket.socket, *, count: int) -> list[bytes]:
    """Receive datagrams, as many as that."""
    sock.settimeout(60)
    return [sock.recv(65_536) for _ in range(count)]


def opened(session: Session, datagram: bytes) -> tuple[bytes, bytes]:
    """Return header and payload of a datagram in plain text. It must be authentic, and new."""
    header, out = memoryview(bytearray(HEADER_BYTES)), bytearray(len(datagram) - HEADER_BYTES - TAG_BYTES)
    assert session.open_data_untrusted(memoryview(datagram), out=memoryview(out), header=header, now=time.monotonic())
    return bytes(header), bytes(out)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize(("size_bytes", "segment_bytes"), SHAPES)
@pytest.mark.parametrize("segments", [True, False], ids=["GSO", "no GSO"])
def test_flush__arrives_byte_for_byte(
    family: socket.AddressFamily, size_bytes: int, segment_bytes: int, *, segments: bool
) -> None:
    one_session, two_session = pair(now=time.monotonic())
    payload = content(size_bytes, seed=SEED)
    with (
        source(family=family, protection=one_session) as one,
        Receiver(family=family, protections={CONTEXT: two_session}) as two,
    ):
        if not segments:
            refuse_segmentation(one.socket)
            if family == socket.AF_INET6:
                two.socket.setsockopt(socket.SOL_UDP, 102, 1)  # UDP_NO_CHECK6_RX
        packets = one.send(two.address, payload, segment_bytes=segment_bytes)
        two.receive(packets=packets)
        assert two.message(0) == payload
        assert two.packets == packets == max(-(-size_bytes // segment_bytes), 1)
        assert (two_session.forged, two_session.replayed) == (0, 0)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_flush__datagrams_are_header_ciphertext_and_tag(count: int) -> None:
    one_session, two_session = pair(now=time.monotonic())
    payload = content(count * 100 - 30, seed=SEED)
    with source(protection=one_session) as one, Receiver() as two:
        two.without_gro()
        one.fill(payload)
        burst = one.burst(two.address, message=9, size_bytes=len(payload), length=5000, segment_bytes=100)
        burst.flags = IMMEDIATE
        one.transmit(burst)
        datagrams = received(two.socket, count=count)
        for index, datagram in enumerate(datagrams):
            piece = payload[index * 100 : (index + 1) * 100]
            assert len(datagram) == HEADER_BYTES + len(piece) + TAG_BYTES
            assert piece not in datagram
            header, plain = opened(two_session, datagram)
            assert plain == piece
            assert int.from_bytes(header[16:24], "big") == index
            assert int.from_bytes(header[36:40], "big") == burst.immediate
            assert int.from_bytes(header[40:48], "big") == 100 * index


def test_add__what_is_queued_does_not_refer_to_the_memory_any_more() -> None:
    """It was encrypted when it was added."""
    one_session, two_session = pair(now=time.monotonic())
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}) as two:
        packets = one.add(two.address, content(50_000, seed=1), segment_bytes=1000, message=0)
        one.fill(bytes(50_000))
        assert one.transmitter.flush(one.socket)
        two.receive(packets=packets)
        assert two.message(0) == content(50_000, seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_add__bursts_of_many_sizes_share_the_stage(seed: int) -> None:
    """Places and sizes in the stage come again in every combination."""
    rng = random.Random(seed)
    one_session, two_session = pair(now=time.monotonic())
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}, chunks=60) as two:
        for _ in range(30):
            sent: dict[int, bytes] = {}
            packets = 0
            for message in range(rng.randint(1, 6)):
                segment = rng.choice((1, 64, 500, 1000, 1400, 8900))
                sent[message] = content(rng.randint(0, min(30 * segment, 90_000)), seed=rng.getrandbits(32))
                packets += one.add(two.address, sent[message], segment_bytes=segment, message=message)
            assert one.transmitter.flush(one.socket)
            two.receive(packets=packets)
            for message, payload in sent.items():
                assert two.message(message) == payload
            two.release()


def test_add__a_batch_of_messages() -> None:
    """Each packet is a message of its own, whose payload lies anywhere."""
    one_session, two_session = pair(now=time.monotonic())
    payload = content(4000, seed=SEED)
    with source(protection=one_session) as one, Receiver() as two:
        two.without_gro()
        one.fill(payload)
        starts = [3000, 0, 100, 3900]
        burst = one.burst(two.address, message=5, size_bytes=400, length=100, segment_bytes=100)
        burst.payload_addresses = np.array([one.region.address + at for at in starts], np.uint64)
        one.transmit(burst)
        found = [opened(two_session, datagram) for datagram in received(two.socket, count=4)]
        assert [plain for _, plain in found] == [payload[at : at + 100] for at in starts]
        assert [int.from_bytes(header[28:32], "big") for header, _ in found] == [5, 6, 7, 8]


def longest(one: Source, datagram_bytes: int, *, sequence: int) -> Burst:
    """The longest burst that a sender makes of datagrams of this size."""
    count, segment = min(STAGE_BYTES // datagram_bytes, 256), datagram_bytes - HEADER_BYTES - TAG_BYTES
    burst = one.burst(
        ("127.0.0.1", 9),
        message=0,
        offset=0,
        size_bytes=count * segment,
        length=count * segment,
        segment_bytes=segment,
    )
    return changed(burst, path_sequence=sequence)


@pytest.mark.parametrize("datagram_bytes", [576, 1472, 8972, 65_507])
def test_has_room_for__the_longest_burst_and_then_what_fits(datagram_bytes: int) -> None:
    one_session, _ = pair(now=time.monotonic())
    with source(protection=one_session) as one:
        burst = longest(one, datagram_bytes, sequence=0)
        assert one.transmitter.has_room_for(burst)
        bursts = 0
        while one.transmitter.has_room_for(burst) and bursts < PACKETS:
            one.transmitter.add(burst)
            bursts += 1
            burst = longest(one, datagram_bytes, sequence=bursts * 256)
        assert 1 <= bursts <= 4
        small = changed(burst, count=1, payload_bytes=1, segment_bytes=1, path=burst.path + 1)
        assert not one.transmitter.has_room_for(small), "another path"
        one.transmitter.discard()
        assert one.transmitter.has_room_for(small)


def test_add__a_burst_whose_short_last_packet_ends_the_stage() -> None:
    """There is room for what it has, but not for as many whole packets. Twice, as its views are kept."""
    one_session, two_session = pair(now=time.monotonic())
    first, second = content(8 * 65_435, seed=1), content(40_001, seed=2)
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}, chunks=60) as two:
        for turn in range(2):
            packets = one.add(two.address, first, segment_bytes=65_435, message=2 * turn)
            burst = one.burst(two.address, message=2 * turn + 1, size_bytes=40_001, segment_bytes=40_000)
            assert one.transmitter.has_room_for(burst)
            assert not one.transmitter.has_room_for(changed(burst, payload_bytes=80_000))
            one.fill(second)
            one.transmit(burst)
            two.receive(packets=two.packets + packets + 2)
            assert two.message(2 * turn) == first
            assert two.message(2 * turn + 1) == second


def test_discard__its_place_is_used_again() -> None:
    one_session, two_session = pair(now=time.monotonic())
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}) as two:
        one.add(two.address, content(50_000, seed=1), segment_bytes=1000, message=1)
        one.transmitter.discard()
        packets = one.send(two.address, content(50_000, seed=2), segment_bytes=1000, message=2)
        two.receive(packets=packets)
        assert {burst.message for burst in two.bursts} == {2}
        assert two.message(2) == content(50_000, seed=2)


@pytest.mark.parametrize("count", [1, 16, 17, 40])
@pytest.mark.parametrize("flags", [0, IMMEDIATE])
def test_add__after_a_key_update(count: int, flags: int) -> None:
    """The key phase is in every header, and no immediate readable."""
    one_session, two_session = pair(now=time.monotonic())
    one_session.update(now=time.monotonic())
    payload = content(count * 100, seed=SEED)
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}) as two:
        one.fill(payload)
        burst = one.burst(two.address, size_bytes=len(payload), segment_bytes=100)
        burst.flags = flags
        one.transmit(burst)
        two.receive(packets=count)
        assert two.message(0) == payload
        assert {(each.flags, each.immediate) for each in two.bursts} == {(flags, burst.immediate)}
        assert two_session.generation == 1
