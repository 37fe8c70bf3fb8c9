"""srd.dask.frames: what is no list of frames ends its reading with one error, whatever it says of its size."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: make test-torch")

from srd import SrdError
from srd.dask.frames import _HEAD, MAX_BYTES, MAX_FRAMES, SMALL_BYTES, EndedError, PeerFrames
from tests.srd.loopback import PLAIN, pair

ROOM_BYTES = 1 << 30


@contextmanager
def little_memory() -> Iterator[None]:
    """Leave this process some address space beyond what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def head(*sizes: int, length: int | None = None, count: int | None = None) -> bytes:
    """A head without the content of small frames."""
    own = _HEAD.size + 8 * len(sizes)
    given = _HEAD.pack(own if length is None else length, len(sizes) if count is None else count)
    return given + struct.pack(f"!{len(sizes)}Q", *sizes)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "too few bytes"),
        (bytes(_HEAD.size - 1), "too few bytes"),
        (head(length=0), "cannot be"),
        (head(1, length=_HEAD.size), "cannot be"),
        (head(count=MAX_FRAMES + 1, length=MAX_BYTES), "cannot be"),
        (head(length=MAX_BYTES + 1), "cannot be"),
        (head(1), "do not fill it"),
        (head(MAX_BYTES + 1), "do not fill it"),
        (head(length=MAX_BYTES), "more bytes than there is memory for"),
        (head(MAX_BYTES), "more bytes than there is memory for"),
    ],
)
async def test_read__what_is_no_list_of_frames(message: bytes, why: str) -> None:
    async with pair(config=PLAIN) as (_, _, here, there):
        frames = PeerFrames(there, on_ended=lambda: None)
        await here.send(message, immediate=0)
        with little_memory(), pytest.raises(EndedError, match=why):
            await frames.read()


@pytest.mark.parametrize("length", [0, SMALL_BYTES + 2])
async def test_read__parts_that_do_not_fit(length: int) -> None:
    async with pair(config=PLAIN) as (_, _, here, there):
        frames = PeerFrames(there, on_ended=lambda: None)
        await here.send(head(SMALL_BYTES + 1), immediate=0)
        await here.send(bytes(length), immediate=1)
        with pytest.raises(EndedError, match=f"a message of {length} bytes where {SMALL_BYTES + 1} are missing"):
            await frames.read()


@pytest.mark.parametrize("immediates", [(None,), (7, 7)])
async def test_messages__without_a_number_of_their_own(immediates: tuple[int | None, ...]) -> None:
    async with pair(config=PLAIN) as (_, _, here, there):
        PeerFrames(there, on_ended=lambda: None)
        for immediate in immediates:
            with suppress(SrdError):  # as the peer has ended for it
                await here.send(b"x", immediate=immediate)
        await there.wait_ended()
        assert "without its number" in str(there.error())
