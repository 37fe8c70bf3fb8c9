"""ACKs behind messages, as transmitters send them over loopback: each datagram byte for byte, among others."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srd.io.tx import MAX_ACKS
from srd.proto.wire.data import HEADER_BYTES, MAX_ACK_WITH_DATA_BYTES, WITH_ACK
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.session import Session
from tests.patience import PATIENCE_S
from tests.srd.io.exchange import LOOPBACK, Source, content, source
from tests.srd.io.test_tx import refuse_segmentation
from tests.srd.secure.sessions import pair

SEGMENT_BYTES = 1000


def add(one: Source, to: tuple[str, int], *, offset: int, size_bytes: int, ack: bytes | None) -> list[bytes]:
    """Queue a message from the region; return what its datagrams carry."""
    burst = one.burst(to, message=offset, offset=offset, size_bytes=size_bytes, segment_bytes=SEGMENT_BYTES)
    whole = one.region[offset : offset + size_bytes]
    if ack is not None:
        burst.ack, burst.flags = ack, WITH_ACK
    if not one.transmitter.has_room_for(burst):
        assert one.transmitter.flush(one.socket)
    one.transmitter.add(burst)
    if ack is not None:
        return [whole + ack]
    return [whole[at : at + SEGMENT_BYTES] for at in range(0, max(size_bytes, 1), SEGMENT_BYTES)]


@contextmanager
def bound_socket() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(LOOPBACK[socket.AF_INET])
        sock.settimeout(PATIENCE_S)
        yield sock


def carried(datagram: bytes, session: Session | None) -> bytes:
    if session is None:
        return datagram[HEADER_BYTES:]
    header, out = memoryview(bytearray(HEADER_BYTES)), bytearray(len(datagram) - HEADER_BYTES - TAG_BYTES)
    assert session.open_data_untrusted(memoryview(datagram), out=memoryview(out), header=header, now=time.monotonic())
    assert bool(header[2] & WITH_ACK) is (datagram[2] & WITH_ACK != 0)
    return bytes(out)


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("segments", [True, False], ids=["GSO", "no GSO"])
@pytest.mark.parametrize("seed", range(3))
def test_flush__acks_behind_messages(seed: int, *, is_secure: bool, segments: bool) -> None:
    rng = random.Random(seed)
    here, there = pair(now=time.monotonic()) if is_secure else (None, None)
    with source(protection=here) as one, bound_socket() as two:
        if not segments:
            refuse_segmentation(one.socket)
        for _ in range(5):
            one.fill(content(40_000, seed=rng.getrandbits(32)))
            expected = list[bytes]()
            for message in range(12):
                ack = rng.choice((None, rng.randbytes(76), rng.randbytes(rng.randint(1, MAX_ACK_WITH_DATA_BYTES))))
                size_bytes = rng.choice((0, 1, 64, 500)) if ack else rng.choice((0, 1, 1000, 2500))
                expected += add(one, two.getsockname(), offset=message * 3000, size_bytes=size_bytes, ack=ack)
            assert one.transmitter.flush(one.socket)
            assert [carried(two.recv(65_536), there) for _ in expected] == expected


def test_has_room_for__as_many_acks_as_there_is_memory_for() -> None:
    acks = [number.to_bytes(MAX_ACK_WITH_DATA_BYTES, "big") for number in range(2 * MAX_ACKS + 1)]
    with source() as one, bound_socket() as two:
        one.fill(content(3000, seed=1))
        to = two.getsockname()
        sent = [add(one, to, offset=number, size_bytes=10, ack=ack) for number, ack in enumerate(acks)]
        assert one.transmitter.flush(one.socket)
        assert [[two.recv(65_536)[HEADER_BYTES:]] for _ in sent] == sent
