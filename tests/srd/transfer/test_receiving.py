"""srd.transfer.receiving over loopback: senders that offer nonsense, lie, repeat themselves or part."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from srd.errors import PeerError
from srd.peer import Peer
from srd.transfer.receiving import FileReceiver, Inbox, Received
from srd.transfer.words import CHUNK_BYTES, Offer, TransferError
from tests.srd.loopback import PATIENCE_S, content, pair
from tests.srd.transfer.ends import OFFER, TRANSFER, hear, names, put, say, say_raw

PAYLOAD = content(3000, seed=51)
DIGEST = hashlib.sha256(PAYLOAD).hexdigest()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


@asynccontextmanager
async def receiving(output: Path) -> AsyncIterator[tuple[Peer, asyncio.Future[Received | None], list[Offer]]]:
    """Give (the scripted sender's peer, the receiver's future, what has started)."""
    started: list[Offer] = []
    async with pair() as (_, _, here, there):
        inbox = Inbox(output, overwrite=False)
        receiver = FileReceiver(there, inbox=inbox, on_start=lambda offer, _: started.append(offer))
        future = asyncio.ensure_future(receiver.receive())
        try:
            yield here, future, started
        finally:
            future.cancel()
            await asyncio.gather(future, return_exceptions=True)
            await there.close()
            inbox.close()


async def result(future: asyncio.Future[Received | None]) -> Received | None:
    return await asyncio.wait_for(future, timeout=PATIENCE_S)


async def begin(sender: Peer, **changed: Any) -> dict[str, Any]:
    await say(sender, "offer", **{**OFFER, **changed})
    return await hear(sender)


# -- what goes well -------------------------------------------------------------------------------------------------


async def test_receive__chunks_in_any_order(output: Path) -> None:
    payload = content(4 * 1024 + 5, seed=52)
    async with receiving(output) as (sender, future, started):
        assert (await begin(sender, size=len(payload), chunk_bytes=1024))["kind"] == "accept"
        await say(sender, "end", sha256=hashlib.sha256(payload).hexdigest())
        for index in (4, 2, 0, 1, 3):
            assert names(output) != ["a.bin"]
            await put(sender, payload[index * 1024 : (index + 1) * 1024], index=index)
        verdict = await hear(sender)
        received = await result(future)
        assert received is not None
        assert verdict == {"kind": "verdict", "sha256": received.sha256}
        assert (received.path, received.size) == (output / "a.bin", len(payload))
        assert received.seconds > 0
        assert (output / "a.bin").read_bytes() == payload
        assert started == [Offer("a.bin", len(payload), 1024, TRANSFER)]


async def test_receive__empty_file(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, size=0)
        await say(sender, "end", sha256=hashlib.sha256().hexdigest())
        assert (await hear(sender))["kind"] == "verdict"
        assert await result(future) is not None
        assert (output / "a.bin").read_bytes() == b""


async def test_receive__a_sender_that_parts_between_files_is_no_error(output: Path) -> None:
    async with receiving(output) as (sender, future, started):
        await sender.close()
        assert await result(future) is None
        assert started == []


# -- offers that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"name": ".."},
        {"name": ""},
        {"name": "x" * 256},
        {"name": 7},
        {"size": -1},
        {"size": 1 << 61},
        {"chunk_bytes": 1},
    ],
    ids=str,
)
async def test_receive__refuses_and_says_why_bad_flow(output: Path, changed: dict[str, Any]) -> None:
    async with receiving(output) as (sender, future, started):
        answer = await begin(sender, **changed)
        assert answer["kind"] == "refuse"
        with pytest.raises(TransferError) as caught:
            await result(future)
        assert str(caught.value) == answer["reason"]
        assert "\n" not in answer["reason"]
        assert started == []
    assert names(output) == []


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"kind": 7}', b" " * 20_000])
async def test_receive__nonsense_for_an_offer_bad_flow(output: Path, body: bytes) -> None:
    async with receiving(output) as (sender, future, _):
        await say_raw(sender, body)
        with pytest.raises(TransferError, match="a word"):
            await result(future)


async def test_receive__data_before_an_offer_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await put(sender, PAYLOAD, index=0)
        with pytest.raises(TransferError, match="data before an offer"):
            await result(future)


# -- transfers that fail --------------------------------------------------------------------------------------------


async def fails(output: Path, sender: Peer, future: asyncio.Future[Received | None], *, reason: str) -> None:
    """The sender is told, the caller too, and nothing is left."""
    verdict = await hear(sender)
    assert verdict["kind"] == "verdict"
    assert "sha256" not in verdict
    with pytest.raises(TransferError, match=reason) as caught:
        await result(future)
    assert str(caught.value).startswith(verdict["reason"])
    assert names(output) == []


async def test_receive__wrong_hash_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await put(sender, PAYLOAD, index=0)
        await say(sender, "end", sha256="0" * 64)
        await fails(output, sender, future, reason=f"SHA-256 is {DIGEST}")


@pytest.mark.parametrize("text", ["\U0001f389" * 2000, "\n\x1b[2J" * 100])
async def test_receive__a_hash_that_is_a_long_story_bad_flow(output: Path, text: str) -> None:
    """Twelve bytes of JSON a character: the answer that quotes it must still fit."""
    body = json.dumps({"kind": "end", "sha256": text}, ensure_ascii=False).encode()
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await put(sender, PAYLOAD, index=0)
        await say_raw(sender, body)
        await fails(output, sender, future, reason="^[^\n\x1b]*$")


@pytest.mark.parametrize(
    ("size_bytes", "index", "reason"),
    [
        (2999, 0, "chunk 0 of 2999 bytes is not part"),
        (3001, 0, "chunk 0 of 3001 bytes is not part"),
        (0, 0, "chunk 0 of 0 bytes is not part"),
        (3000, 1, "chunk 1 of 3000 bytes is not part"),
        (3000, (1 << 31) - 1, "is not part"),
    ],
)
async def test_receive__chunks_that_do_not_fit_bad_flow(output: Path, size_bytes: int, index: int, reason: str) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await put(sender, bytes(size_bytes), index=index)
        await say(sender, "end", sha256=DIGEST)
        await fails(output, sender, future, reason=reason)


async def test_receive__a_chunk_twice_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, size=2048, chunk_bytes=1024)
        for _ in range(2):
            await put(sender, bytes(1024), index=0)
        await say(sender, "end", sha256=DIGEST)
        await fails(output, sender, future, reason="chunk 0 came twice")


@pytest.mark.parametrize("kind", ["offer", "verdict", "\U0001f389" * 600])
async def test_receive__another_word_where_the_end_was_due_bad_flow(output: Path, kind: str) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await say(sender, kind)
        await fails(output, sender, future, reason="where the end was expected")


async def test_receive__a_disk_that_fails_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Many chunks are on their way to the disk when the first fails: one error is told, the others leave no trace."""

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("srd.transfer.store.os.pwritev", fail)

    async def scenario() -> None:
        async with receiving(output) as (sender, future, _):
            await begin(sender, size=8 * CHUNK_BYTES)
            puts = [asyncio.ensure_future(put(sender, bytes(CHUNK_BYTES), index=index)) for index in range(8)]
            await asyncio.gather(*puts)
            await say(sender, "end", sha256=DIGEST)
            await fails(
                output, sender, future, reason=r"^a.bin: cannot be written at the receiver: No space left on device$"
            )

    await scenario()  # a function of its own, so that nothing keeps its tasks alive
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_receive__a_sender_that_parts_in_the_middle_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, started):
        await begin(sender, size=2048, chunk_bytes=1024)
        await put(sender, bytes(1024), index=0)
        await sender.close()
        with pytest.raises(PeerError, match="closed by the other end"):
            await result(future)
        assert len(started) == 1
    assert names(output) == []


async def test_receive__cancelled_in_the_middle_leaves_no_partial_file(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, size=2048, chunk_bytes=1024)
        await put(sender, bytes(1024), index=0)
        assert len(names(output)) == 1
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert names(output) == []
