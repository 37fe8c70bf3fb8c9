"""srd.file_transfer.sending over loopback: whole files, and receivers that refuse, fail or disconnect."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devmem.region import Region
from srd.errors import PeerError
from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE, TransferError, TransferInterruptedError
from srd.file_transfer.sending import SLOTS, FileSender, Sent
from srd.file_transfer.source_file import SourceFile
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.file_transfer.ends import (
    ends,
    file_of,
    names,
    put,
    receive_control,
    send_control,
    send_raw,
    within_patience,
)
from tests.srd.loopback import SMALL, content, pair, receive

LARGER_THAN_THE_REGIONS = SMALL.receive_region_bytes + SLOTS * CHUNK_BYTES + 12_345


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


async def send_to(script: Peer, sender: FileSender, path: Path) -> asyncio.Future[Sent]:
    """Begin to send; return when the scripted receiver has received the offer."""
    sending = asyncio.ensure_future(sender.send(path))
    offer = await receive_control(script)
    assert (offer["kind"], offer["name"]) == ("offer", path.name)
    return sending


# -- success --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 99])
async def test_send__arrives_verified(tmp_path: Path, output: Path, size_bytes: int, *, mapped: bool) -> None:
    path = file_of(tmp_path, size_bytes)
    async with ends(output, mapped=mapped) as (sender, receiver):
        sent, received = await within_patience(sender.send(path), receiver.receive())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert sent == Sent("a.bin", size_bytes, digest)
        assert (received.name, received.size, received.sha256) == ("a.bin", size_bytes, digest)
        assert (output / "a.bin").read_bytes() == path.read_bytes()


async def test_send__a_file_larger_than_both_regions(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, LARGER_THAN_THE_REGIONS)
    async with ends(output) as (sender, receiver):
        sent, _ = await within_patience(sender.send(path), receiver.receive())
        assert isinstance(sent, Sent)
        assert (output / "a.bin").read_bytes() == path.read_bytes()


async def test_send__progress_adds_up_to_the_file(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 3 * CHUNK_BYTES + 7)
    seen: list[int] = []
    async with ends(output) as (sender, receiver):
        sender._on_progress = seen.append
        await within_patience(sender.send(path), receiver.receive())
        assert sum(seen) == 3 * CHUNK_BYTES + 7
        assert len(seen) == 4


async def test_send__one_after_the_other_on_one_peer(tmp_path: Path, output: Path) -> None:
    paths = [file_of(tmp_path, size, name=f"{size}.bin") for size in (10, 0, CHUNK_BYTES + 1)]
    async with ends(output) as (sender, receiver):
        for path in paths:
            results = await within_patience(sender.send(path), receiver.receive())
            assert not any(isinstance(result, BaseException) for result in results), results
        assert [(output / path.name).read_bytes() for path in paths] == [path.read_bytes() for path in paths]


# -- files that change or cannot be read ----------------------------------------------------------------------------


async def test_send__a_file_that_shrinks_bad_flow(
    tmp_path: Path, output: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, 4 * CHUNK_BYTES)
    async with ends(output, on_start=lambda _: os.truncate(path, CHUNK_BYTES + 5)) as (sender, receiver):
        receiving = asyncio.ensure_future(receiver.receive())
        with pytest.raises(TransferError, match=r"a.bin: became shorter while it was read; send it again$"):
            await asyncio.wait_for(sender.send(path), timeout=PATIENCE_S)
        with pytest.raises(TransferError, match=r"^the sender gave up: a.bin: became shorter while it was read"):
            await asyncio.wait_for(receiving, timeout=PATIENCE_S)
    assert names(output) == []
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_send__a_file_that_grows_is_sent_as_it_was(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 2 * CHUNK_BYTES)

    def grow(_: object) -> None:
        with path.open("ab") as file:
            file.write(b"more")

    async with ends(output, on_start=grow) as (sender, receiver):
        sent, _ = await within_patience(sender.send(path), receiver.receive())
        assert sent.size == 2 * CHUNK_BYTES
        assert (output / "a.bin").read_bytes() == path.read_bytes()[: 2 * CHUNK_BYTES]


@pytest.mark.parametrize(("name", "reason"), [("gone", "No such file or directory"), ("", "Is a directory")])
async def test_send__what_cannot_be_opened_bad_flow(tmp_path: Path, output: Path, name: str, reason: str) -> None:
    async with ends(output) as (sender, _):
        with pytest.raises(TransferError, match=rf"^{tmp_path / name}: cannot be read: {reason}$"):
            await sender.send(tmp_path / name)


async def test_send__a_failed_file_does_not_stop_the_next(tmp_path: Path, output: Path) -> None:
    async with ends(output) as (sender, receiver):
        with pytest.raises(TransferError):
            await sender.send(tmp_path / "gone")
        sent, _ = await within_patience(sender.send(file_of(tmp_path, 10)), receiver.receive())
        assert isinstance(sent, Sent)


# -- receivers that refuse ------------------------------------------------------------------------------------------


async def test_send__refused_because_it_exists_bad_flow(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 1000)
    (output / "a.bin").write_bytes(b"old")
    async with ends(output) as (sender, receiver):
        sent, received = await within_patience(sender.send(path), receiver.receive())
        assert isinstance(sent, TransferError)
        assert str(sent) == str(received)
        assert "exists already at the receiver" in str(sent)
    assert (output / "a.bin").read_bytes() == b"old"
    assert names(output) == ["a.bin"]


async def test_send__overwrites_when_the_receiver_may(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 1000)
    (output / "a.bin").write_bytes(b"old")
    async with ends(output, overwrite=True) as (sender, receiver):
        await within_patience(sender.send(path), receiver.receive())
    assert (output / "a.bin").read_bytes() == path.read_bytes()


async def test_send__a_mapped_file_is_sent_from_its_mapping(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, 3 * CHUNK_BYTES)
    async with ends(output, mapped=True) as (sender, receiver):
        chunks = []
        send = Peer.post_send

        def recording(
            peer: Peer, region: Region, *, offset: int, length: int, immediate: int | None = None
        ) -> asyncio.Future[Status]:
            chunks.append((region.writable, offset, length))
            return send(peer, region, offset=offset, length=length, immediate=immediate)

        monkeypatch.setattr(Peer, "post_send", recording)  # to record the memory of each send
        await within_patience(sender.send(path), receiver.receive())
        mapped = [(offset, length) for writable, offset, length in chunks if not writable]
        assert mapped == [(index * CHUNK_BYTES, CHUNK_BYTES) for index in range(3)]
    assert (output / "a.bin").read_bytes() == path.read_bytes()


async def test_send__refused_without_a_reason_bad_flow(tmp_path: Path) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 10))
        await send_control(there, "refuse")
        with pytest.raises(TransferError, match="refused without a reason"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


async def test_send__the_verdict_may_come_during_the_transfer_bad_flow(tmp_path: Path) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 40 * CHUNK_BYTES))
        await send_control(there, "accept")
        await receive(there)
        await send_control(there, "verdict", reason="a.bin: the disk is full")
        while not sending.done():
            taking: asyncio.Future[Any] = asyncio.ensure_future(receive(there))
            both: set[asyncio.Future[Any]] = {sending, taking}
            await asyncio.wait(both, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            taking.cancel()
        with pytest.raises(TransferError, match=r"^a.bin: the disk is full$"):
            await sending
        await there.close()
        sender.close()


async def test_send__the_verdict_is_reported_though_the_receiver_closes_after_it_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer ends while a chunk is read: the user must see the reason that it sent before."""
    gate, reading = threading.Event(), threading.Event()
    digest = hashlib.sha256()

    class BlockedHash:
        def update(self, view: memoryview) -> None:
            reading.set()
            assert gate.wait(PATIENCE_S)
            digest.update(view)

        def hexdigest(self) -> str:
            return digest.hexdigest()

    monkeypatch.setattr("srd.file_transfer.source_file.hashlib", SimpleNamespace(sha256=BlockedHash))
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 3 * CHUNK_BYTES))
        await send_control(there, "accept")
        assert await asyncio.to_thread(reading.wait, PATIENCE_S)
        await send_control(there, "verdict", reason="a.bin: the disk is full")
        await asyncio.wait_for(there.close(), timeout=PATIENCE_S)
        await asyncio.wait_for(here.wait_ended(), timeout=PATIENCE_S)
        gate.set()
        with pytest.raises(TransferError, match=r"^a.bin: the disk is full$"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


async def test_send__verified_though_the_receiver_closed_before_the_last_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`recv --once` closes right after its verdict; the ack of END may be lost, which ends END in an error."""
    path = file_of(tmp_path, 100)
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        original = sender._send_control

        async def send_and_lose_the_ack(kind: str, **fields: object) -> None:
            await original(kind, **fields)
            if kind == "end":
                await here.wait_ended()
                raise here.error()

        monkeypatch.setattr(sender, "_send_control", send_and_lose_the_ack)
        sending = await send_to(there, sender, path)
        await send_control(there, "accept")
        bodies = [await receive(there), await receive(there)]
        assert path.read_bytes() in bodies
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        await send_control(there, "verdict", sha256=digest)
        await there.close()
        assert (await asyncio.wait_for(sending, timeout=PATIENCE_S)).sha256 == digest
        sender.close()


# -- faulty receivers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"sha256": "0" * 64}, "the receiver could not verify it"),
        ({"reason": "SHA-256 differs"}, "SHA-256 differs"),
        ({}, "the receiver could not verify it"),
        ({"kind": "accept"}, "the receiver could not verify it"),
    ],
    ids=str,
)
async def test_send__only_the_right_hash_is_success_bad_flow(
    tmp_path: Path, answer: dict[str, str], reason: str
) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 100))
        await send_control(there, "accept")
        await receive(there)
        await receive(there)
        await send_control(there, **{"kind": "verdict", **answer})
        with pytest.raises(TransferError, match=reason):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"kind": 7}', b'{"kind": "accept"' + b" " * 20_000])
async def test_send__an_invalid_reply_bad_flow(tmp_path: Path, body: bytes) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 100))
        await send_raw(there, body)
        with pytest.raises(TransferError, match="a message"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


async def test_send__data_instead_of_a_reply_bad_flow(tmp_path: Path) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 100))
        await put(there, content(500, seed=1), index=0)
        with pytest.raises(TransferError, match="is it srd recv"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


@pytest.mark.parametrize("accepted", ["before", "after"])
async def test_send__a_receiver_that_closes_bad_flow(
    tmp_path: Path, accepted: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 40 * CHUNK_BYTES))
        if accepted == "after":
            await send_control(there, "accept")
            await receive(there)
        await there.close()
        with pytest.raises(PeerError, match="closed by the other end"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_send__cancelled_in_the_middle_leaves_nothing_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = asyncio.all_tasks()
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 40 * CHUNK_BYTES))
        await send_control(there, "accept")
        await receive(there)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await there.close()
        sender.close()
    assert asyncio.all_tasks() == tasks
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_encode__a_chunk_index_is_no_message() -> None:
    assert (1 << 62) // CHUNK_BYTES > CONTROL_MESSAGE  # the largest offer needs the check in protocol.py


# -- chunks that fail, and attempts ---------------------------------------------------------------------------------


def fail_chunk(monkeypatch: pytest.MonkeyPatch, status: Status, *, index: int) -> None:
    """Have chunk `index` end in `status`, once, while the peer is alive."""
    send = Peer.post_send
    left = [index]

    def failing(
        peer: Peer, region: Region, *, offset: int, length: int, immediate: int | None = None
    ) -> asyncio.Future[Status]:
        if immediate not in left:
            return send(peer, region, offset=offset, length=length, immediate=immediate)
        left.clear()
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        future.set_result(status)
        return future

    monkeypatch.setattr(Peer, "post_send", failing)


@pytest.mark.parametrize("status", [Status.LOCAL_ERROR_UNRESP_REMOTE, Status.REMOTE_ERROR_RNR, Status.FLUSHED])
@pytest.mark.parametrize("index", [0, 3, 24])
async def test_send__a_chunk_that_fails_ends_the_attempt_at_both_ends_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch, status: Status, index: int
) -> None:
    path = file_of(tmp_path, 25 * CHUNK_BYTES)
    async with ends(output) as (sender, receiver):
        fail_chunk(monkeypatch, status, index=index)
        sent, received = await within_patience(sender.send(path), receiver.receive())
        assert isinstance(sent, TransferInterruptedError)
        assert str(sent) == f"the receiver is alive, but a chunk ended with {status.name}"
        assert isinstance(received, TransferInterruptedError)
        assert str(received) == f"the sender gave up: {sent}"
    assert names(output) == []


async def test_send__a_receiver_that_accepts_no_chunk_is_not_retried_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ends(output) as (sender, receiver):
        fail_chunk(monkeypatch, Status.REMOTE_ERROR_BAD_LENGTH, index=0)
        sent, received = await within_patience(sender.send(file_of(tmp_path, 10)), receiver.receive())
        for error in (sent, received):
            assert isinstance(error, TransferError)
            assert not isinstance(error, TransferInterruptedError)


@pytest.mark.parametrize("mapped", [False, True])
async def test_attempt__sends_the_missing_chunks(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch, *, mapped: bool
) -> None:
    path = file_of(tmp_path, 40 * CHUNK_BYTES + 5)
    with SourceFile(path) as source:
        async with ends(output, mapped=mapped, retry_for_s=60) as (sender, receiver):
            fail_chunk(monkeypatch, Status.LOCAL_ERROR_UNRESP_REMOTE, index=30)
            sent, _ = await within_patience(sender.attempt(source), receiver.receive())
            assert isinstance(sent, TransferInterruptedError)
        resumed: list[int] = []
        async with ends(output, mapped=mapped, retry_for_s=60) as (sender, receiver):
            receiver._on_start = lambda _, resumed_bytes: resumed.append(resumed_bytes)
            seen: list[int] = []
            sender._on_progress = seen.append
            sent, _ = await within_patience(sender.attempt(source), receiver.receive())
            assert isinstance(sent, Sent)
            assert sum(seen) == path.stat().st_size
    assert 0 < resumed[0] <= 30 * CHUNK_BYTES
    assert sent.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (output / "a.bin").read_bytes() == path.read_bytes()
    assert names(output) == ["a.bin"]


async def test_attempt__a_file_that_changed_meanwhile_bad_flow(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 10)
    with SourceFile(path) as source:
        path.write_bytes(b"other bytes")
        async with ends(output) as (sender, _):
            with pytest.raises(TransferError, match=r"a.bin: was changed while it was sent; send it again$"):
                await sender.attempt(source)


@pytest.mark.parametrize("chunks", [1, -1, 1 << 70, "0", 0.0, None])
async def test_send__a_receiver_with_chunks_that_were_never_sent_bad_flow(tmp_path: Path, chunks: object) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 100))
        await send_control(there, "accept", chunks=chunks)
        with pytest.raises(TransferError, match="has chunks that were never sent"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


async def test_send__refused_for_now_bad_flow(tmp_path: Path) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 10))
        await send_control(there, "refuse", reason="busy", again=True)
        with pytest.raises(TransferInterruptedError, match=r"^busy$"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        sender.close()


async def test_send__a_receiver_that_stops_releasing_bad_flow(tmp_path: Path) -> None:
    """It is alive and releases nothing: the requests time out and end the attempt, though not even ABORT has credit."""
    opener = replace(SMALL, protocol=replace(SMALL.protocol, request_timeout_s=0.5))
    async with pair(opener=opener) as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None)
        sending = await send_to(there, sender, file_of(tmp_path, 40 * CHUNK_BYTES))
        await send_control(there, "accept", chunks=0)
        held = [await there.recv()]
        with pytest.raises(TransferInterruptedError, match="the receiver is alive, but a chunk ended with"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        assert not here.ended
        for message in held:
            message.release()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(here.close(), there.close())
        sender.close()


def test_source_file__a_fifo_is_no_file_and_does_not_block_bad_flow(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TransferError, match=r"fifo: cannot be read: Is no regular file$"):
        SourceFile(tmp_path / "fifo")
