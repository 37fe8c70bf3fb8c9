"""srd.file_transfer.ordered_chunks: nothing is written out of order, unverified, or twice, and little is kept."""

from __future__ import annotations

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from srd.file_transfer.digests import chunk_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.ordered_chunks import OrderedChunks
from srd.file_transfer.protocol import PIPE_WINDOW, Offer
from tests.srd.loopback import content

OFFER = Offer("-", 0, 1024, "0" * 32, is_pipe=True)


def made(written: list[bytes]) -> OrderedChunks:
    return OrderedChunks(OFFER, write=written.append)


def digest(chunk: bytes) -> bytes:
    return chunk_digest([memoryview(chunk)])


def put(chunks: OrderedChunks, index: int, chunk: bytes) -> None:
    chunks.put(index, [memoryview(chunk)[:3], memoryview(chunk)[3:]])


@given(data=st.data(), sizes=st.lists(st.integers(1, 1024), max_size=PIPE_WINDOW))
def test_put__in_any_order(data: st.DataObject, sizes: list[int]) -> None:
    """At any time exactly the leading chunks are written that have come with their digests."""
    payloads = [content(size, seed=number) for number, size in enumerate(sizes)]
    steps = [(index, is_digest) for index in range(len(sizes)) for is_digest in (False, True)]
    written: list[bytes] = []
    chunks, come = made(written), set[tuple[int, bool]]()
    for index, is_digest in data.draw(st.permutations(steps)):
        if is_digest:
            chunks.announce(index, [digest(payloads[index])])
        else:
            put(chunks, index, payloads[index])
        come.add((index, is_digest))
        leading = next((n for n in range(len(sizes)) if not {(n, False), (n, True)} <= come), len(sizes))
        assert written == payloads[:leading]
        assert (chunks.taken, chunks.size_bytes) == (leading, sum(sizes[:leading]))
        assert chunks.complete is (len(come) == 2 * leading)
    assert chunks.complete
    assert chunks.hexdigest() == blake3(b"".join(payloads)).hexdigest()


@given(
    calls=st.lists(
        st.tuples(st.integers(0, PIPE_WINDOW + 2), st.sampled_from([b"", b"good", b"evil", b"x" * 1025, None]))
    )
)
def test_put__whatever_comes_only_what_is_announced_is_written_bad_flow(
    calls: list[tuple[int, bytes | None]],
) -> None:
    written: list[bytes] = []
    chunks = made(written)
    for index, chunk in calls:
        try:
            if chunk is None:
                chunks.announce(index, [digest(b"good")])
            else:
                put(chunks, index, chunk)
        except TransferError:
            pass
        assert len(chunks._landed) <= PIPE_WINDOW
        assert len(chunks._announced) <= PIPE_WINDOW
    assert set(written) <= {b"good"}
    assert len(written) == chunks.taken


def test_forget__what_is_not_written_comes_again() -> None:
    written: list[bytes] = []
    chunks = made(written)
    put(chunks, 1, b"b")
    chunks.announce(0, [digest(b"a")])
    assert not chunks.complete
    chunks.forget()
    for index, chunk in ((1, b"b"), (0, b"a")):
        chunks.announce(index, [digest(chunk)])
        put(chunks, index, chunk)
    assert written == [b"a", b"b"]
