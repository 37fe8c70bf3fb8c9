"""Landing of payload in posted buffers: every byte of memory against a model of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.card.landing import Piece, land_batch, land_message
from nitro_emu.efa.card.recv_queue import PostedReceive

IOVA = 0x7000_0000_0000
SIZE = 4096
LKEY = 5
GUARD = 0xA5


class Memory:
    """Registered memory of a program, and payload to land in it."""

    def __init__(self, payload: bytes) -> None:
        self.bytes = np.full(SIZE, GUARD, np.uint8)
        self.expected = bytearray([GUARD]) * SIZE
        self.payload = np.frombuffer(payload or b"\0", np.uint8).copy()

    @property
    def source(self) -> int:
        return int(self.payload.ctypes.data)

    def place(self, address: int, length: int, lkey: int) -> int | None:
        offset = address - IOVA
        if lkey != LKEY or offset < 0 or offset + length > SIZE:
            return None
        return int(self.bytes.ctypes.data) + offset

    def check(self) -> None:
        assert self.bytes.tobytes() == bytes(self.expected)


def request(buffers: list[tuple[int, int, int]]) -> PostedReceive:
    return PostedReceive(1, sum(length for _, length, _ in buffers), tuple(buffers))


def model(memory: Memory, data: bytes, buffers: list[tuple[int, int, int]]) -> bool:
    """Put a message into its buffers one after the other, as the definition says; whether it fits."""
    left, parts = data, []
    for address, size, lkey in buffers:
        part, left = left[:size], left[size:]
        if part and memory.place(address, len(part), lkey) is None:
            return False
        parts.append((address - IOVA, part))
    for offset, part in parts:
        memory.expected[offset : offset + len(part)] = part or b""
    return not left


def payload_of(count: int, *, length: int) -> bytes:
    """Bytes of which each eight are unique."""
    lanes = np.arange(1, count * length // 8 + 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return lanes.tobytes()[: count * length]


buffer = st.tuples(
    st.one_of(st.integers(0, SIZE), st.integers(-2, 2), st.integers(SIZE - 2, SIZE + 2)).map(lambda at: IOVA + at),
    st.one_of(st.integers(0, 64), st.sampled_from((300, 0xFFFF))),
    st.sampled_from((LKEY,) * 9 + (LKEY + 1,)),
)


@given(st.integers(0, 300), st.lists(buffer, min_size=1, max_size=2), st.lists(st.integers(1, 100), max_size=4))
def test_a_message_in_any_pieces_lands_in_its_buffers(
    length: int, buffers: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    memory = Memory(payload_of(1, length=length))
    pieces, at = [], 0
    for cut in cuts:
        if at + cut < length:
            pieces.append(Piece(memory.source + at, cut))
            at += cut
    pieces.append(Piece(memory.source + at, length - at))
    fits = model(memory, memory.payload.tobytes()[:length], buffers)
    if not fits:
        return  # the caller has refused it before
    assert land_message(pieces, request(buffers), length=length, place=memory.place)
    memory.check()


def test_nothing_is_written_when_the_second_buffer_is_not_registered() -> None:
    memory = Memory(payload_of(1, length=64))
    buffers = [(IOVA, 32, LKEY), (IOVA + 100, 32, LKEY + 1)]
    assert not land_message([Piece(memory.source, 64)], request(buffers), length=64, place=memory.place)
    memory.check()


LAYOUTS = st.sampled_from(("packed", "apart", "backwards", "same", "mixed", "two", "short"))


def laid_out(kind: str, *, count: int, length: int, start: int) -> list[list[tuple[int, int, int]]]:
    step = {"packed": length, "apart": length + 3, "backwards": -length, "same": 0}.get(kind, length)
    messages = [[(IOVA + start + index * step, length, LKEY)] for index in range(count)]
    if kind == "mixed":
        messages[count // 2] = [(IOVA, length, LKEY + 1)]
    if kind == "two":
        messages = [[(each[0][0], length // 2, LKEY), (each[0][0] + 1000, length, LKEY)] for each in messages]
    if kind == "short":
        messages[0] = [(messages[0][0][0], length // 2, LKEY), (IOVA + 3000, length, LKEY)]
    return messages


@given(LAYOUTS, st.integers(1, 20), st.integers(0, 40), st.integers(-60, SIZE))
def test_a_batch_lands_as_its_messages_one_by_one(kind: str, count: int, length: int, start: int) -> None:
    memory = Memory(payload_of(count, length=length))
    messages = laid_out(kind, count=count, length=length, start=start)
    data = memory.payload.tobytes()
    expected = [
        model(memory, data[index * length : (index + 1) * length], buffers) for index, buffers in enumerate(messages)
    ]
    landed = land_batch(memory.source, [request(each) for each in messages], length=length, place=memory.place)
    assert landed == expected
    memory.check()


def test_a_batch_at_the_end_of_the_address_space_does_not_wrap() -> None:
    memory = Memory(payload_of(8, length=16))
    messages = [[((1 << 64) - 16 * (8 - index), 16, LKEY)] for index in range(8)]
    landed = land_batch(memory.source, [request(each) for each in messages], length=16, place=memory.place)
    assert landed == [False] * 8
    memory.check()
