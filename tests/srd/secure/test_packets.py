"""srd.secure.packets: published vectors, and that C and Python write and accept the same bytes, and nothing else."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES
from srd.secure.packets import HAS_NATIVE, LARGE_BYTES, DirectionKeys, Suite, derive, library
from tests.srd.secure.sessions import plain_headers

SECRET = bytes(range(64, 96))
LENGTHS = (0, 1, 15, 16, 17, 1400, LARGE_BYTES, LARGE_BYTES + 1, 8900)
GUARD = b"\xa5" * 64
"""Lies behind what may be written."""

native = pytest.mark.compiled  # C is in that build


@dataclass
class Opened:
    """What came of opening a train: packets kept, their headers and payloads, and whether anything else was written."""

    kept: int
    headers: bytes
    payload: bytes
    guards: bytes


class Ways:
    """Both ways of doing the same, with keys of their own."""

    def __init__(self, *, suite: Suite = Suite.AES_256_GCM) -> None:
        self.keys = DirectionKeys(SECRET, suite=suite)
        self.seals, self.opens = self.keys.native(seals=True), self.keys.native(seals=False)

    def seal(
        self, headers: bytes, payloads: list[bytes], *, in_c: bool, sequence: int, path: int, phase: int = 0
    ) -> bytes:
        segment, count = len(payloads[0]), len(payloads)
        size = segment + HEADER_BYTES + TAG_BYTES
        room = (count - 1) * size + len(payloads[-1]) + HEADER_BYTES + TAG_BYTES
        packets = memoryview(bytearray(room) + GUARD)
        for index in range(count):
            packets[index * size :][:HEADER_BYTES] = headers[index * HEADER_BYTES :][:HEADER_BYTES]
        views = [memoryview(payload) for payload in payloads]
        if in_c:
            used = self.seals.seal(packets[:room], views, segment, path, sequence, phase)
        else:
            used = self.keys.seal_one_by_one(
                packets, views, segment_bytes=segment, path=path, path_sequence=sequence, phase=phase
            )
        assert (used, bytes(packets[room:])) == (room, GUARD)
        return bytes(packets[:room])

    def open(
        self, packets: bytes, *, in_c: bool, size: int, count: int, number: int, start: int = 0, stride: int = 0
    ) -> Opened:
        stride = stride or size
        last = len(packets) - start - (count - 1) * stride
        room = (count - 1) * (size - HEADER_BYTES - TAG_BYTES) + last - HEADER_BYTES - TAG_BYTES
        out, headers = bytearray(room) + GUARD, bytearray(count * HEADER_BYTES) + GUARD
        memory, heads = memoryview(out), memoryview(headers)
        if in_c:
            kept = self.opens.open_untrusted(
                packets, start, stride, size, count, last, number, memory[:room], heads[: count * HEADER_BYTES]
            )
        else:
            kept = self.keys.open_one_by_one_untrusted(
                memoryview(packets),
                start=start,
                stride=stride,
                size_bytes=size,
                count=count,
                last_bytes=last,
                number=number,
                out=memory,
                headers=heads,
            )
        written = kept * (size - HEADER_BYTES - TAG_BYTES) - (size - last if kept == count else 0)
        guards = bytes(out[room:] + headers[count * HEADER_BYTES :])
        return Opened(kept, bytes(headers[: kept * HEADER_BYTES]), bytes(out[:written]), guards)


# -- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_c", [False, pytest.param(True, marks=native)])
@pytest.mark.parametrize("suite", Suite)
def test_seal__is_the_aead_of_its_standard(suite: Suite, *, in_c: bool) -> None:
    """NIST SP 800-38D and RFC 8439, as another library has them: key, nonce and associated data by PROTOCOL.md."""
    keys = DirectionKeys(SECRET, suite=suite)
    header = plain_headers(1, path=3, sequence=7, flags=0, message=9, segment=5)
    packet = memoryview(bytearray(header + bytes(5 + TAG_BYTES)))
    if in_c:
        keys.native(seals=True).seal(packet, [memoryview(b"hello")], 5, 3, 7, 0)
    else:
        keys.seal_one_by_one(packet, [memoryview(b"hello")], segment_bytes=5, path=3, path_sequence=7, phase=0)
    aead = (AESGCM if suite is Suite.AES_256_GCM else ChaCha20Poly1305)(derive(SECRET, b"srd key"))
    nonce = bytearray(derive(SECRET, b"srd iv")[:12])
    nonce[3] ^= 3
    nonce[11] ^= 7
    assert aead.decrypt(bytes(nonce), bytes(packet[HEADER_BYTES:]), header) == b"hello"


def test_seal__a_sequence_that_is_not_above_all_others_is_refused() -> None:
    keys = DirectionKeys(SECRET, suite=Suite.AES_256_GCM)

    def seal(sequence: int, *, path: int, count: int = 1) -> int:
        packets = memoryview(bytearray(count * 100))
        return keys.seal(
            packets,
            [memoryview(b"")] * count,
            count=count,
            segment_bytes=0,
            path=path,
            path_sequence=sequence,
            phase=0,
        )

    assert seal(5, path=0, count=3) == 3 * (HEADER_BYTES + TAG_BYTES)
    assert seal(5, path=1)
    for sequence in (0, 5, 7):
        with pytest.raises(ValueError, match=f"path sequence {sequence} was used before"):
            seal(sequence, path=0)
    assert seal(8, path=0)


# -- C and Python ----------------------------------------------------------------------------------------------------


@native
def test_library__is_the_systems() -> None:
    assert HAS_NATIVE
    assert library().startswith("in C, by OpenSSL ")


@native
@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("flags", [0, IMMEDIATE, IMMEDIATE | ABORTED])
@pytest.mark.parametrize("length", LENGTHS)
def test_both__write_and_accept_the_same(suite: Suite, flags: int, length: int) -> None:
    """All but one packet of this length, a last one that is shorter, any path and number, both key phases."""
    rng = random.Random(length)
    for count, last, sequence, path, phase in (
        (1, length, 0, 0, 0),
        (5, length, (1 << 32) - 5, 127, KEY_PHASE),  # no burst crosses that
        (7, length // 2, (1 << 48) + 1, 1, 0),
    ):
        ways = Ways(suite=suite)
        payloads = [rng.randbytes(length) for _ in range(count - 1)] + [rng.randbytes(last)]
        headers = plain_headers(count, path=path, sequence=sequence, flags=flags, message=9, segment=length)
        sealed = [
            ways.seal(headers, payloads, in_c=in_c, sequence=sequence, path=path, phase=phase) for in_c in (False, True)
        ]
        assert sealed[0] == sealed[1]
        size = length + HEADER_BYTES + TAG_BYTES
        expected = Opened(count, headers, b"".join(payloads), GUARD * 2)
        for in_c in (False, True):
            assert ways.open(sealed[0], in_c=in_c, size=size, count=count, number=sequence) == expected


@native
@given(data=st.data())
def test_both__stop_at_the_same_packet(data: st.DataObject) -> None:
    """After any bits are flipped, anywhere: both keep as many packets, and describe the same."""
    ways = Ways()
    count, length = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([0, 1, 16, 33]))
    flags = data.draw(st.sampled_from([0, IMMEDIATE]))
    headers = plain_headers(count, path=1, sequence=3, flags=flags, message=9, segment=length)
    packets = bytearray(ways.seal(headers, [bytes(length)] * count, in_c=True, sequence=3, path=1))
    for bit in data.draw(st.lists(st.integers(0, 8 * len(packets) - 1), max_size=3)):
        packets[bit // 8] ^= 1 << bit % 8
    size = length + HEADER_BYTES + TAG_BYTES
    found = [ways.open(bytes(packets), in_c=in_c, size=size, count=count, number=3) for in_c in (False, True)]
    assert found[0] == found[1]
    assert found[0].guards == GUARD * 2


@native
@pytest.mark.parametrize("in_c", [False, True])
def test_open__packets_that_lie_apart(*, in_c: bool) -> None:
    ways = Ways()
    headers = plain_headers(3, path=1, sequence=3, flags=0, message=9, segment=20)
    payloads = [bytes([number]) * 20 for number in range(3)]
    packets = ways.seal(headers, payloads, in_c=True, sequence=3, path=1)
    size = 20 + HEADER_BYTES + TAG_BYTES
    apart = b"x" * 7 + (b"y" * 9).join(packets[at : at + size] for at in range(0, len(packets), size))
    found = ways.open(apart, in_c=in_c, size=size, count=3, number=3, start=7, stride=size + 9)
    assert found == Opened(3, headers, b"".join(payloads), GUARD * 2)


# -- what C refuses --------------------------------------------------------------------------------------------------


@native
def test_seal__without_room_or_of_odd_pieces_bad_flow() -> None:
    seals = Ways().seals
    packets, two = bytearray(172), [memoryview(bytes(20))] * 2
    with pytest.raises(ValueError, match="172 bytes have no room for 184"):
        seals.seal(packets, two, 20, 0, 0, 0)
    for payloads in ([], [memoryview(bytes(19)), memoryview(bytes(20))], [memoryview(b""), memoryview(bytes(20))]):
        with pytest.raises(ValueError, match="payload"):
            seals.seal(bytearray(1000), payloads, 20, 0, 0, 0)
    with pytest.raises(ValueError, match="payload"):
        seals.seal(bytearray(1000), two, 0, 0, 0, 0)
    assert packets == bytearray(172)


@native
@pytest.mark.parametrize(
    ("start", "stride", "size", "count", "last", "out", "headers"),
    [
        (0, 100, 100, 3, 100, 84, 168),  # beyond the packets
        (-1, 100, 100, 2, 100, 56, 112),
        (101, 100, 100, 1, 100, 28, 56),
        (0, 100, 71, 2, 71, 56, 112),  # too short for a header and a tag
        (0, 100, 100, 2, 71, 56, 112),
        (0, 99, 100, 2, 100, 56, 112),  # they overlap
        (0, 100, 100, 0, 100, 56, 112),
        (0, 100, 100, 2, 101, 56, 112),
        (0, 100, 100, 2, 100, 55, 112),  # no room
        (0, 100, 100, 2, 100, 56, 111),
        (0, 1 << 62, 100, 4, 100, 56, 224),
        (1 << 62, 100, 100, 1, 100, 56, 224),
        (0, 100, 100, 1 << 62, 100, 56, 224),
    ],
)
def test_open__beyond_its_buffers_bad_flow(
    start: int, stride: int, size: int, count: int, last: int, out: int, headers: int
) -> None:
    opens = Ways().opens
    with pytest.raises(ValueError, match="exceed the buffers"):
        opens.open_untrusted(bytes(200), start, stride, size, count, last, 0, bytearray(out), bytearray(headers))


@native
def test_keys__of_another_direction_or_in_use_bad_flow() -> None:
    ways = Ways()
    with pytest.raises(ValueError, match="either seal or open"):
        ways.opens.seal(bytearray(72), [memoryview(b"")], 0, 0, 0, 0)
    with pytest.raises(ValueError, match="either seal or open"):
        ways.seals.open_untrusted(bytes(72), 0, 72, 72, 1, 72, 0, bytearray(), bytearray(56))
    for key, iv in ((bytes(31), bytes(12)), (bytes(32), bytes(11))):
        with pytest.raises(ValueError, match="no keys"):
            type(ways.seals)(suite=1, key=key, iv=iv, immediates_key=bytes(32), seals=True)
    with pytest.raises(ValueError, match="no keys"):
        type(ways.seals)(suite=3, key=bytes(32), iv=bytes(12), immediates_key=bytes(32), seals=True)


@native
def test_keys__of_many_threads() -> None:
    """Keys in use refuse others; keys of their own do not disturb each other."""
    done: list[bool] = []

    def work() -> None:
        ways = Ways()
        headers = plain_headers(40, path=1, sequence=3, flags=IMMEDIATE, message=9, segment=1400)
        payloads = [bytes([number]) * 1400 for number in range(40)]
        for _ in range(50):
            packets = ways.seal(headers, payloads, in_c=True, sequence=3, path=1)
            found = ways.open(packets, in_c=True, size=1472, count=40, number=3)
            done.append(found == Opened(40, headers, b"".join(payloads), GUARD * 2))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 200
