"""srd.file_transfer.receiving over loopback: senders with invalid offers or data, or that disconnect."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from srd.errors import PeerError
from srd.file_transfer.protocol import CHUNK_BYTES, Offer, TransferError, TransferInterruptedError
from srd.file_transfer.receiving import FileReceiver, Inbox, NotStartedError, Received
from srd.peer import Peer
from tests.patience import PATIENCE_S
from tests.srd.file_transfer.ends import OFFER, TRANSFER, names, put, receive_control, send_control, send_raw
from tests.srd.loopback import content, open_files, pair

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
    await send_control(sender, "offer", **{**OFFER, **changed})
    return await receive_control(sender)


# -- success --------------------------------------------------------------------------------------------------------


async def test_receive__chunks_in_any_order(output: Path) -> None:
    payload = content(4 * 1024 + 5, seed=52)
    async with receiving(output) as (sender, future, started):
        assert (await begin(sender, size=len(payload), chunk_bytes=1024))["kind"] == "accept"
        await send_control(sender, "end", sha256=hashlib.sha256(payload).hexdigest())
        for index in (4, 2, 0, 1, 3):
            assert names(output) != ["a.bin"]
            await put(sender, payload[index * 1024 : (index + 1) * 1024], index=index)
        verdict = await receive_control(sender)
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
        await send_control(sender, "end", sha256=hashlib.sha256().hexdigest())
        assert (await receive_control(sender))["kind"] == "verdict"
        assert await result(future) is not None
        assert (output / "a.bin").read_bytes() == b""


async def test_receive__a_sender_that_closes_between_files_is_no_error(output: Path) -> None:
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
async def test_receive__refuses_with_the_reason_bad_flow(output: Path, changed: dict[str, Any]) -> None:
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
async def test_receive__an_invalid_offer_bad_flow(output: Path, body: bytes) -> None:
    async with receiving(output) as (sender, future, _):
        await send_raw(sender, body)
        with pytest.raises(TransferError, match="a message"):
            await result(future)


async def test_receive__data_before_an_offer_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await put(sender, PAYLOAD, index=0)
        with pytest.raises(TransferError, match="data before an offer"):
            await result(future)


# -- transfers that fail --------------------------------------------------------------------------------------------


async def fails(output: Path, sender: Peer, future: asyncio.Future[Received | None], *, reason: str) -> None:
    """The sender and the caller get the error, and nothing is left."""
    verdict = await receive_control(sender)
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
        await send_control(sender, "end", sha256="0" * 64)
        await fails(output, sender, future, reason=f"SHA-256 is {DIGEST}")


@pytest.mark.parametrize("text", ["\U0001f389" * 2000, "\n\x1b[2J" * 100])
async def test_receive__a_long_hash_bad_flow(output: Path, text: str) -> None:
    """Twelve bytes of JSON for each character: the reply that quotes it must still fit."""
    body = json.dumps({"kind": "end", "sha256": text}, ensure_ascii=False).encode()
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await put(sender, PAYLOAD, index=0)
        await send_raw(sender, body)
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
        await send_control(sender, "end", sha256=DIGEST)
        await fails(output, sender, future, reason=reason)


async def test_receive__a_chunk_twice_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, size=2048, chunk_bytes=1024)
        for _ in range(2):
            await put(sender, bytes(1024), index=0)
        await send_control(sender, "end", sha256=DIGEST)
        await fails(output, sender, future, reason="chunk 0 came twice")


@pytest.mark.parametrize("kind", ["offer", "verdict", "\U0001f389" * 600])
async def test_receive__another_message_instead_of_end_bad_flow(output: Path, kind: str) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender)
        await send_control(sender, kind)
        await fails(output, sender, future, reason="where the end was expected")


async def test_receive__a_disk_that_fails_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Many chunks are being written when the first fails: one error is reported, and the others are ignored."""

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("srd.file_transfer.partial_file.os.pwritev", fail)

    async def scenario() -> None:
        async with receiving(output) as (sender, future, _):
            await begin(sender, size=8 * CHUNK_BYTES)
            puts = [asyncio.ensure_future(put(sender, bytes(CHUNK_BYTES), index=index)) for index in range(8)]
            await asyncio.gather(*puts)
            await send_control(sender, "end", sha256=DIGEST)
            await fails(
                output, sender, future, reason=r"^a.bin: cannot be written at the receiver: No space left on device$"
            )

    await scenario()  # a function of its own, so that nothing keeps its tasks alive
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_receive__a_sender_that_closes_during_a_transfer_bad_flow(output: Path) -> None:
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


# -- one transfer, several attempts ---------------------------------------------------------------------------------


@asynccontextmanager
async def sharing(inbox: Inbox) -> AsyncIterator[tuple[Peer, asyncio.Future[Received | None]]]:
    """Give (a scripted sender's peer, the receiver's future); any number may share an inbox."""
    async with pair() as (_, _, here, there):
        future = asyncio.ensure_future(FileReceiver(there, inbox=inbox, on_start=lambda *_: None).receive())
        try:
            yield here, future
        finally:
            future.cancel()
            await asyncio.gather(future, return_exceptions=True)
            await there.close()


KEPT = {"size": 5 * 1024, "chunk_bytes": 1024, "retry_for_s": 60}
FIVE = content(5 * 1024, seed=53)


async def put_chunks(sender: Peer, *indices: int) -> None:
    for index in indices:
        await put(sender, FIVE[index * 1024 : (index + 1) * 1024], index=index)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_receive__the_next_attempt_resumes(output: Path, *, is_restarted: bool) -> None:
    first = Inbox(output, overwrite=False)
    async with sharing(first) as (sender, future):
        assert (await begin(sender, **KEPT))["chunks"] == 0
        await put_chunks(sender, 0, 1, 4)
        await send_control(sender, "abort", reason="a chunk failed", again=True)
        with pytest.raises(TransferInterruptedError, match=r"^the sender gave up: a chunk failed$"):
            await result(future)
    second = Inbox(output, overwrite=False) if is_restarted else first
    async with sharing(second) as (sender, future):
        assert (await begin(sender, **KEPT))["chunks"] == 2
        await put_chunks(sender, 2, 3, 4)
        await send_control(sender, "end", sha256=hashlib.sha256(FIVE).hexdigest())
        received = await result(future)
        assert received is not None
    assert names(output) == ["a.bin"]
    assert (output / "a.bin").read_bytes() == FIVE
    for inbox in {first, second}:
        inbox.close()


async def test_receive__another_attempt_ends_a_stalled_one(output: Path) -> None:
    inbox = Inbox(output, overwrite=False)
    async with sharing(inbox) as (old, lost), sharing(inbox) as (new, future):
        await begin(old, **KEPT)
        await put_chunks(old, 0)
        assert (await begin(new, **KEPT))["chunks"] == 1
        with pytest.raises(TransferInterruptedError, match=r"a.bin: its sender has begun another attempt"):
            await result(lost)
        await put_chunks(new, 1, 2, 3, 4)
        await send_control(new, "end", sha256=hashlib.sha256(FIVE).hexdigest())
        assert await result(future) is not None
    assert names(output) == ["a.bin"]
    inbox.close()


async def test_receive__a_sender_that_aborts_leaves_nothing_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, **KEPT)
        await put_chunks(sender, 0)
        await send_control(sender, "abort", reason="cannot be read", again=False)
        with pytest.raises(TransferError, match=r"^the sender gave up: cannot be read$"):
            await result(future)
        assert names(output) == []


async def test_receive__a_sender_that_closes_has_aborted_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, **KEPT)
        await put_chunks(sender, 0)
        await sender.close()
        with pytest.raises(PeerError):
            await result(future)
        assert names(output) == []


async def test_receive__a_received_file_is_confirmed_again(output: Path) -> None:
    """The sender lost its peer before the verdict: its file is not refused as existing."""
    inbox = Inbox(output, overwrite=False)
    digest = hashlib.sha256(FIVE).hexdigest()
    async with sharing(inbox) as (sender, future):
        await begin(sender, **KEPT)
        await put_chunks(sender, 0, 1, 2, 3, 4)
        await send_control(sender, "end", sha256=digest)
        assert await result(future) is not None
    async with sharing(inbox) as (sender, future):
        assert (await begin(sender, **KEPT))["chunks"] == 5
        await send_control(sender, "end", sha256=digest)
        assert await receive_control(sender) == {"kind": "verdict", "sha256": digest}
        assert await result(future) is None
    async with sharing(inbox) as (sender, future):
        answer = await begin(sender, **{**KEPT, "transfer": "f" * 32})
        assert (answer["kind"], answer.get("again")) == ("refuse", None)
        assert "exists already" in answer["reason"]
    inbox.close()


async def test_receive__two_senders_of_one_name_stay_apart(output: Path) -> None:
    inbox = Inbox(output, overwrite=True)
    async with sharing(inbox) as (one, first), sharing(inbox) as (two, second):
        await begin(one, **KEPT)
        await begin(two, **{**KEPT, "transfer": "f" * 32})
        for index in range(5):
            await put(one, bytes([1]) * 1024, index=index)
            await put(two, bytes([2]) * 1024, index=index)
        await send_control(one, "end", sha256=hashlib.sha256(bytes([1]) * 5120).hexdigest())
        assert await result(first) is not None
        assert (output / "a.bin").read_bytes() == bytes([1]) * 5120
        await send_control(two, "end", sha256=hashlib.sha256(bytes([2]) * 5120).hexdigest())
        assert await result(second) is not None
        assert (output / "a.bin").read_bytes() == bytes([2]) * 5120
    inbox.close()


# -- peers that stall -----------------------------------------------------------------------------------------------


async def test_receive__transfers_are_limited(output: Path) -> None:
    inbox = Inbox(output, overwrite=False, max_transfers=1)
    async with sharing(inbox) as (one, _), sharing(inbox) as (two, future):
        await begin(one, **KEPT)
        answer = await begin(two, **{**KEPT, "transfer": "f" * 32})
        assert (answer["kind"], answer["again"]) == ("refuse", True)
        with pytest.raises(NotStartedError, match="busy with 1 transfers"):
            await result(future)
    async with sharing(inbox) as (three, _):
        assert (await begin(three, **{**KEPT, "transfer": "e" * 32}))["kind"] == "accept"
    inbox.close()


async def test_receive__an_idle_peer_costs_nothing_and_is_not_kept(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srd.file_transfer.receiving.OFFER_WITHIN_S", 0.05)
    inbox = Inbox(output, overwrite=False)
    async with pair() as (_, _, _, there):
        files, threads = open_files(), set(threading.enumerate())  # of which an earlier test's may end meanwhile
        receiver = FileReceiver(there, inbox=inbox, on_start=lambda *_: None)
        assert open_files() == files
        assert set(threading.enumerate()) <= threads
        with pytest.raises(NotStartedError, match=r"^127.0.0.1:\d+: offered nothing within 0.05 s$"):
            await receiver.receive()
        assert open_files() == files
        assert set(threading.enumerate()) <= threads
    inbox.close()


async def test_receive__a_live_sender_that_sends_nothing_bad_flow(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srd.file_transfer.receiving.STALL_S", 0.2)
    async with receiving(output) as (sender, future, _):
        await begin(sender, size=2048, chunk_bytes=1024)
        await put(sender, bytes(1024), index=0)
        answer = await receive_control(sender)
        assert (answer["kind"], answer["again"]) == ("verdict", True)
        with pytest.raises(TransferInterruptedError, match=r"the sender is alive, but sent nothing for 0.2 s"):
            await result(future)


async def test_receive__a_part_that_cannot_be_removed_is_only_reported(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ext4's `chattr +a`, or a directory that became read-only: the transfer fails, the receiver continues."""

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    warnings: list[str] = []
    inbox = Inbox(output, overwrite=False)
    async with pair() as (_, _, here, there):
        receiver = FileReceiver(there, inbox=inbox, on_start=lambda *_: None, warn=warnings.append)
        for _ in range(2):
            future = asyncio.ensure_future(receiver.receive())
            monkeypatch.setattr(Path, "unlink", fail)
            await begin(here)
            await put(here, PAYLOAD, index=0)
            await send_control(here, "end", sha256="0" * 64)
            assert "SHA-256 is" in (await receive_control(here))["reason"]
            with pytest.raises(TransferError, match="SHA-256 is"):
                await result(future)
        monkeypatch.undo()
    assert len(warnings) == 2
    assert warnings[0].endswith(".part: cannot be removed: Operation not permitted")
    inbox.close()
