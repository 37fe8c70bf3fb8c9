from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from srd.tunnel.send_memory import MemoryPiece, PacketMemory

CHUNK_BYTES, CHUNKS = 1024, 4


class Pieces(RuleBasedStateMachine):
    """Pieces never share memory, whatever is taken and given back; memory that is free is found."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = PacketMemory(chunk_bytes=CHUNK_BYTES, chunks=CHUNKS)
        self.taken: list[tuple[MemoryPiece, int]] = []
        self.number = 0

    @rule(room=st.integers(1, CHUNK_BYTES), data=st.data())
    def take(self, room: int, data: st.DataObject) -> None:
        view = self.memory.room(room)
        if view is None:
            assert len({place.chunk for place, _ in self.taken}) == CHUNKS, "each chunk holds something"
            return
        assert len(view) == room
        size = data.draw(st.integers(1, room))
        self.number = (self.number + 1) % 256
        view[:size] = bytes([self.number]) * size
        place = self.memory.take(size)
        assert len(place.view) == size
        self.taken.append((place, self.number))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        place, _ = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.memory.give_back(place)

    @invariant()
    def nothing_was_overwritten(self) -> None:
        for place, number in self.taken:
            assert bytes(place.view) == bytes([number]) * len(place.view)
        chunks = {place.chunk for place, _ in self.taken}
        assert self.memory.used_fraction == len(chunks) / CHUNKS

    def teardown(self) -> None:
        while self.taken:
            self.memory.give_back(self.taken.pop()[0])
        assert self.memory.room(CHUNK_BYTES) is not None
        self.memory.close()


TestPieces = Pieces.TestCase
