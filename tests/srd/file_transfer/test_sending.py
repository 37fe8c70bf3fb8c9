"""srd.file_transfer.sending over loopback: whole files, and receivers that refuse, fail or disconnect."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devmem.region import Region
from srd.config import EndpointConfig
from srd.errors import PeerError, SrdError
from srd.file_transfer import source_file
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE
from srd.file_transfer.read_ahead import SLOTS
from srd.file_transfer.sending import FileEnd, FileSender, SentFile
from srd.file_transfer.source_file import SourceFile
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.failing import failing
from tests.patience import PATIENCE_S, until
from tests.srd.file_transfer.ends import (
    answer,
    digest_of,
    ends,
    file_of,
    names,
    put,
    receive_control,
    send_control,
    send_raw,
)
from tests.srd.loopback import SMALL, pair, receive

LARGER_THAN_THE_REGIONS = SMALL.receive_region_bytes + SLOTS * CHUNK_BYTES + 12_345


@asynccontextmanager
async def fails(path: Path, *, match: str, error: type[SrdError] = TransferError) -> AsyncIterator[Peer]:
    """Begin to send to a scripted receiver, which is given; after what it does the transfer fails with this error."""
    async with begun(path) as (sending, _, there):
        yield there
        with pytest.raises(error, match=match):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)


@asynccontextmanager
async def begun(
    path: Path, *, opener: EndpointConfig = SMALL
) -> AsyncIterator[tuple[asyncio.Future[SentFile], Peer, Peer]]:
    """Begin to send to a scripted receiver; give the transfer, the sender's peer and the receiver's."""
    async with pair(opener=opener) as (_, _, here, there):
        sender = FileSender(here)
        yield await send_to(there, sender, path), here, there
        sender.close()


async def send_to(script: Peer, sender: FileSender, path: Path) -> asyncio.Future[SentFile]:
    """Begin to send; return when the scripted receiver has received the offer."""
    sending = asyncio.ensure_future(sender.send(path))
    offer = await receive_control(script)
    assert (offer["kind"], offer["files"][0]["name"]) == ("offer", path.name)
    return sending


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Region, dict[str, Any]]]:
    """Return where each send is noted from now on: its memory, and its other arguments."""
    send, sends = Peer.post_send, list[tuple[Region, dict[str, Any]]]()

    def post_send(peer: Peer, region: Region, **options: Any) -> asyncio.Future[Status]:
        sends.append((region, options))
        return send(peer, region, **options)

    monkeypatch.setattr(Peer, "post_send", post_send)
    return sends


def assert_no_error_was_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nor of a task that nobody waits for."""
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# -- success --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, LARGER_THAN_THE_REGIONS])
async def test_send__arrives_verified(tmp_path: Path, output: Path, size_bytes: int, *, mapped: bool) -> None:
    path = file_of(tmp_path, size_bytes)
    async with ends(output, mapped=mapped) as (sender, record):
        sent = await sender.send(path)
        digest = digest_of(path.read_bytes())
        assert sent == SentFile("a.bin", size_bytes, "blake3", digest)
        (received,) = record.received
        assert (received.name, received.size, received.digest) == ("a.bin", size_bytes, digest)
        assert (output / "a.bin").read_bytes() == path.read_bytes()


# -- files that change or cannot be read ----------------------------------------------------------------------------


async def test_send__a_file_that_shrinks_bad_flow(
    tmp_path: Path, output: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, 4 * CHUNK_BYTES)
    async with ends(output, on_resume=lambda _: os.truncate(path, CHUNK_BYTES + 5)) as (sender, record):
        with pytest.raises(TransferError, match=r"a.bin: became shorter while it was read; send it again$"):
            await asyncio.wait_for(sender.send(path), timeout=PATIENCE_S)
        ((_, error, _),) = record.failures
        assert str(error).startswith("the sender gave up: a.bin: became shorter while it was read")
    assert names(output) == []
    assert_no_error_was_logged(caplog)


@pytest.mark.parametrize("chunks", [4, SLOTS + 4])
async def test_send__a_mapped_file_that_shrinks_when_all_is_on_its_way_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """The transport sends nothing of it any more, and takes that for loss: no chunk ends, so that nothing is read."""
    path, post, held = file_of(tmp_path, chunks * CHUNK_BYTES), FileSender._post, list[Any]()

    def truncate_and_post(sender: FileSender, offered: Any, chunk: Any) -> None:
        held.append((offered, chunk))
        if len(held) == min(chunks, SLOTS):  # no other chunk is, or can be, read
            os.truncate(path, 1000)
            for each in held:
                post(sender, *each)

    monkeypatch.setattr(FileSender, "_post", truncate_and_post)
    monkeypatch.setattr(source_file, "_TICK_NS", 0)  # it is not hashed once more because it is new
    async with ends(output, mapped=True) as (sender, record):
        with pytest.raises(TransferError, match=r"a.bin: became shorter while it was read; send it again$"):
            await asyncio.wait_for(sender.send(path), timeout=PATIENCE_S)
        assert len(record.failures) == 1
    assert names(output) == []


def open_files() -> list[Path]:
    return [entry.resolve() for entry in Path("/proc/self/fd").iterdir() if entry.exists()]


async def test_send__a_mapped_file_is_open_no_longer_than_the_session(tmp_path: Path, output: Path) -> None:
    """Also if it is cancelled: nothing of it waits for a timer."""
    path = file_of(tmp_path, 40 * CHUNK_BYTES)
    async with ends(output, mapped=True) as (sender, _):
        sending = asyncio.ensure_future(sender.send(path))
        await until(lambda: any(offered.mapping for offered in sender._open.values()), pause_s=0)
        sending.cancel()
        await asyncio.wait([sending])
    assert path not in open_files()


async def test_send__a_file_that_grows_is_sent_as_it_was(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, 2 * CHUNK_BYTES)

    def grow(_: object) -> None:
        with path.open("ab") as file:
            file.write(b"more")

    async with ends(output, on_resume=grow) as (sender, _):
        sent = await sender.send(path)
        assert sent.size == 2 * CHUNK_BYTES
        assert (output / "a.bin").read_bytes() == path.read_bytes()[: 2 * CHUNK_BYTES]


async def send_and_meanwhile(path: Path, output: Path, change: Callable[[], None]) -> list[str]:
    """Send a file of more chunks than are read ahead; call `change` when the first is sent, and the last not read."""
    async with ends(output, overwrite=True) as (sender, _):
        changes = [change]
        sender._on_progress = lambda *_: changes.pop()() if changes else None
        await sender.send(path)
    return names(output)


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_send__a_file_that_is_written_to_is_not_verified_bad_flow(
    tmp_path: Path, output: Path, *, is_set_back: bool
) -> None:
    """What was read is no state that the file ever had; its time may have been set back, as by rsync --inplace."""
    path = file_of(tmp_path, (SLOTS + 8) * CHUNK_BYTES)
    before = path.stat()

    def write() -> None:
        with path.open("r+b") as file:
            for offset, whence in ((0, os.SEEK_SET), (-5, os.SEEK_END)):
                file.seek(offset, whence)
                file.write(b"other")
        if is_set_back:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(TransferError, match=r"a.bin: was changed while it was sent; send it again$"):
        await send_and_meanwhile(path, output, write)
    assert names(output) == []


async def test_send__another_name_and_mode_are_no_change(tmp_path: Path, output: Path) -> None:
    path = file_of(tmp_path, (SLOTS + 8) * CHUNK_BYTES)

    def rename() -> None:
        path.chmod(0o600)
        path.rename(tmp_path / "a.bin.1")

    assert await send_and_meanwhile(path, output, rename) == ["a.bin"]
    assert (output / "a.bin").read_bytes() == (tmp_path / "a.bin.1").read_bytes()


@pytest.mark.parametrize(("name", "reason"), [("gone", "No such file or directory"), ("", "Is a directory")])
async def test_send__what_cannot_be_opened_bad_flow(tmp_path: Path, output: Path, name: str, reason: str) -> None:
    async with ends(output) as (sender, _):
        with pytest.raises(TransferError, match=rf"^{tmp_path / name}: cannot be read: {reason}$"):
            await sender.send(tmp_path / name)


async def test_send__an_error_that_nobody_expects_is_said_at_both_ends_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceFile, "read", failing(ZeroDivisionError("boom")))
    async with ends(output, retry_for_s=60) as (sender, record):
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(sender.send(file_of(tmp_path, 10)), timeout=PATIENCE_S)
    ((error, files),) = record.lost
    assert str(error) == "the sender gave up: internal error of the sender: ZeroDivisionError: boom"
    assert [is_kept for _, is_kept in files] == [False]


# -- receivers that refuse ------------------------------------------------------------------------------------------


async def test_send__a_mapped_file_is_sent_from_its_mapping(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, 3 * CHUNK_BYTES)
    async with ends(output, mapped=True) as (sender, _):
        sends = recorded(monkeypatch)
        await sender.send(path)
        mapped = [(send["offset"], send["length"]) for region, send in sends if not region.writable]
        assert mapped == [(index * CHUNK_BYTES, CHUNK_BYTES) for index in range(3)]
    assert (output / "a.bin").read_bytes() == path.read_bytes()


async def test_send__the_verdict_may_come_during_the_transfer_bad_flow(tmp_path: Path) -> None:
    async with begun(file_of(tmp_path, 40 * CHUNK_BYTES)) as (sending, _, there):
        await answer(there, chunks=0)
        await receive(there)
        await answer(there, reason="a.bin: the disk is full")
        while not sending.done():
            taking: asyncio.Future[Any] = asyncio.ensure_future(receive(there))
            both: set[asyncio.Future[Any]] = {sending, taking}
            await asyncio.wait(both, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            taking.cancel()
        with pytest.raises(TransferError, match=r"^a.bin: the disk is full$"):
            await sending
        await there.close()


async def test_send__the_verdict_is_reported_though_the_receiver_closes_after_it_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer ends while a chunk is read: the user must see the reason that it sent before."""
    gate, reading = threading.Event(), threading.Event()
    read = SourceFile.read

    def blocked(source: SourceFile, index: int, *, into: memoryview) -> tuple[int, bytes]:
        reading.set()
        assert gate.wait(PATIENCE_S)
        return read(source, index, into=into)

    monkeypatch.setattr(SourceFile, "read", blocked)
    async with begun(file_of(tmp_path, 3 * CHUNK_BYTES)) as (sending, here, there):
        await answer(there, chunks=0)
        assert await asyncio.to_thread(reading.wait, PATIENCE_S)
        await answer(there, reason="a.bin: the disk is full")
        await asyncio.wait_for(there.close(), timeout=PATIENCE_S)
        await asyncio.wait_for(here.wait_ended(), timeout=PATIENCE_S)
        gate.set()
        with pytest.raises(TransferError, match=r"^a.bin: the disk is full$"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)


async def test_send__verified_though_the_receiver_closed_before_the_last_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`recv --once` closes right after its verdict; the ack of END may be lost, which ends END in an error."""
    path = file_of(tmp_path, 100)
    async with pair() as (_, _, here, there):
        sender = FileSender(here)
        original = sender._send_control

        async def send_and_lose_the_ack(kind: str, **fields: object) -> None:
            await original(kind, **fields)
            if kind == "end":
                await here.wait_ended()
                raise here.error()

        monkeypatch.setattr(sender, "_send_control", send_and_lose_the_ack)
        sending = await send_to(there, sender, path)
        await answer(there, chunks=0)
        bodies = [await receive(there), await receive(there)]
        assert path.read_bytes() in bodies
        digest = digest_of(path.read_bytes())
        await answer(there, digest=digest)
        await there.close()
        assert (await asyncio.wait_for(sending, timeout=PATIENCE_S)).digest == digest
        sender.close()


# -- faulty receivers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"digest": "0" * 64}, "the receiver could not verify it"),
        ({"digest": ""}, "the receiver could not verify it"),
        ({"reason": "BLAKE3 differs"}, "BLAKE3 differs"),
        ({}, "has chunks that it cannot have"),
        ({"made": True}, "has chunks that it cannot have"),
        ({"has": "0" * 64}, "has chunks that it cannot have"),
        ({"file": 1, "digest": "0" * 64}, "answers for a file that was not offered"),
        ({"file": None}, "with an entry without a file"),
    ],
    ids=str,
)
async def test_send__only_the_right_hash_is_success_bad_flow(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    async with fails(file_of(tmp_path, 100), match=reason) as there:
        await answer(there, chunks=0)
        await receive(there)
        await receive(there)
        await answer(there, **fields)


@pytest.mark.parametrize(
    ("reply", "error", "match"),
    [
        pytest.param(partial(send_control, kind="refuse"), TransferError, "refused without a reason", id="refused"),
        pytest.param(
            partial(send_control, kind="refuse", reason="busy", again=True),
            TransferInterruptedError,
            "^busy$",
            id="refused for now",
        ),
        pytest.param(partial(send_raw, body=b"[]"), TransferError, "a message", id="no message"),
        pytest.param(partial(put, payload=bytes(500), index=0), TransferError, "is it srd recv", id="data"),
        *[
            pytest.param(partial(answer, chunks=chunks), TransferError, "chunks that it cannot have", id=str(chunks))
            for chunks in (2, -1, 1 << 70, "0", 0.0, None)
        ],
    ],
)
async def test_send__an_answer_to_the_offer_that_ends_it_bad_flow(
    tmp_path: Path, reply: Callable[[Peer], Awaitable[None]], error: type[SrdError], match: str
) -> None:
    async with fails(file_of(tmp_path, 100), match=match, error=error) as there:
        await reply(there)


@pytest.mark.parametrize("accepted", ["before", "after"])
async def test_send__a_receiver_that_closes_bad_flow(
    tmp_path: Path, accepted: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, 40 * CHUNK_BYTES)
    async with fails(path, match="closed by the other end", error=PeerError) as there:
        if accepted == "after":
            await answer(there, chunks=0)
            await receive(there)
        await there.close()
    assert_no_error_was_logged(caplog)


async def test_send__cancelled_in_the_middle_leaves_nothing_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = asyncio.all_tasks()
    async with begun(file_of(tmp_path, 40 * CHUNK_BYTES)) as (sending, _, there):
        await answer(there, chunks=0)
        await receive(there)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await there.close()
    assert asyncio.all_tasks() == tasks
    assert_no_error_was_logged(caplog)


# -- chunks that fail, and attempts ---------------------------------------------------------------------------------


def fail_chunk(monkeypatch: pytest.MonkeyPatch, status: Status, *, index: int) -> None:
    """Have chunk `index` end in `status`, once, while the peer is alive."""
    send = Peer.post_send
    left = [index]

    def fail_once(peer: Peer, region: Region, **options: Any) -> asyncio.Future[Status]:
        if options["immediate"] not in left:
            return send(peer, region, **options)
        left.clear()
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        future.set_result(status)
        return future

    monkeypatch.setattr(Peer, "post_send", fail_once)


@pytest.mark.parametrize("status", [Status.LOCAL_ERROR_UNRESP_REMOTE, Status.REMOTE_ERROR_RNR, Status.FLUSHED])
@pytest.mark.parametrize("index", [0, 3, 24])
async def test_send__a_chunk_that_fails_ends_the_attempt_at_both_ends_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch, status: Status, index: int
) -> None:
    path = file_of(tmp_path, 25 * CHUNK_BYTES)
    async with ends(output) as (sender, record):
        fail_chunk(monkeypatch, status, index=index)
        with pytest.raises(TransferInterruptedError) as caught:
            await sender.send(path)
        assert str(caught.value) == f"the receiver is alive, but a chunk ended with {status.name}"
    ((error, files),) = record.lost
    assert isinstance(error, TransferInterruptedError)
    assert str(error) == f"the sender gave up: {caught.value}"
    assert len(files) == 1
    assert names(output) == []


async def test_send__a_receiver_that_accepts_no_chunk_is_not_retried_bad_flow(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ends(output) as (sender, record):
        fail_chunk(monkeypatch, Status.REMOTE_ERROR_BAD_LENGTH, index=0)
        with pytest.raises(TransferError) as caught:
            await sender.send(file_of(tmp_path, 10))
    for error in (caught.value, record.lost[0][0]):
        assert not isinstance(error, TransferInterruptedError)


def outgoing(path: Path, number: int = 0, **more: Any) -> OutgoingFile:
    return OutgoingFile(path, path.name, size=path.stat().st_size, transfer=f"{number:032x}", **more)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("is_another_process", [False, True])
async def test_send_all__the_next_attempt_sends_the_missing_chunks(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch, *, mapped: bool, is_another_process: bool
) -> None:
    path = file_of(tmp_path, 40 * CHUNK_BYTES + 5)
    file, outcomes = outgoing(path), list[FileEnd]()
    async with ends(output, mapped=mapped, retry_for_s=60) as (sender, _):
        fail_chunk(monkeypatch, Status.LOCAL_ERROR_UNRESP_REMOTE, index=30)
        with pytest.raises(TransferInterruptedError):
            await sender.send_all([file], on_end=lambda _, outcome: outcomes.append(outcome))
    if is_another_process:
        file.close()
        file = outgoing(path)
    async with ends(output, mapped=mapped, retry_for_s=60) as (sender, record):
        seen: list[int] = []
        sender._on_progress = lambda _, size_bytes: seen.append(size_bytes)
        await sender.send_all([file], on_end=lambda _, outcome: outcomes.append(outcome))
        assert sum(seen) == path.stat().st_size
    assert 0 < record.resumed[0][1] <= path.stat().st_size - CHUNK_BYTES
    assert outcomes == [SentFile("a.bin", path.stat().st_size, "blake3", digest_of(path.read_bytes()))]
    assert (output / "a.bin").read_bytes() == path.read_bytes()
    assert names(output) == ["a.bin"]


async def test_send_all__a_file_that_changed_meanwhile_bad_flow(tmp_path: Path, output: Path) -> None:
    file, outcomes = outgoing(file_of(tmp_path, 10)), list[FileEnd]()
    file.open(file_hash="blake3")
    file.path.write_bytes(b"other bytes")
    async with ends(output) as (sender, record):
        await sender.send_all([file], on_end=lambda _, outcome: outcomes.append(outcome))
    assert str(outcomes[0]).endswith("a.bin: was changed while it was sent; send it again")
    assert (record.resumed, file.source) == ([], None)


# -- many files -----------------------------------------------------------------------------------------------------


async def test_send_all__more_files_than_are_in_flight_and_a_tree(tmp_path: Path, output: Path) -> None:
    """One cannot be read, one is refused: each has its outcome, and all others arrive."""
    files = [outgoing(file_of(tmp_path, 37 * number, name=f"{number}", seed=number), number) for number in range(150)]
    files[3].path.unlink()
    (output / "5").write_bytes(b"old")
    for number in (7, 8):
        files[number].name = f"one/two/{number}"
    large = outgoing(file_of(tmp_path, 3 * CHUNK_BYTES + 1, name="large"), 999)
    trees = [OutgoingFile(tmp_path, name, mode=0o750, mtime_ns=10**18) for name in ("one/two", "one", "empty")]
    contents = {file.name: file.path.read_bytes() for file in [*files, large] if file.path.exists()}
    outcomes: dict[str, FileEnd] = {}
    async with ends(output) as (sender, record):
        await sender.send_all(
            [*trees, *files[:50], large, *files[50:]],
            on_end=lambda file, outcome: outcomes.update({file.name: outcome}),
        )
        assert record.done == 1
    failed = {name: str(outcome) for name, outcome in outcomes.items() if isinstance(outcome, TransferError)}
    assert set(failed) == {"3", "5"}
    assert "No such file" in failed["3"]
    assert "exists already" in failed["5"]
    assert set(outcomes) == {file.name for file in [*files, large, *trees]}
    assert all((output / name).read_bytes() == each for name, each in contents.items() if name != "5")
    assert [(output / tree.name).stat().st_mtime_ns for tree in trees] == [10**18] * 3
    assert all(file.source is None for file in files)


async def test_send_all__what_is_there_is_not_sent(
    tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        outgoing(file_of(tmp_path, 2 * CHUNK_BYTES + 9, name=f"{number}", seed=number), number, if_differs=True)
        for number in range(3)
    ]
    (output / "0").write_bytes(files[0].path.read_bytes())
    (output / "1").write_bytes(bytes(2 * CHUNK_BYTES + 9))
    outcomes: dict[str, FileEnd] = {}
    async with ends(output, overwrite=True) as (sender, record):
        sends = recorded(monkeypatch)
        await sender.send_all(files, on_end=lambda file, outcome: outcomes.update({file.name: outcome}))
        assert record.identical == ["0"]
    assert [isinstance(outcomes[name], SentFile) and outcomes[name].was_there for name in "012"] == [True, False, False]  # type: ignore[union-attr]
    assert sorted(send["immediate"] for _, send in sends if send["immediate"] < CONTROL_MESSAGE) == [*range(3, 9)]
    assert all((output / file.name).read_bytes() == file.path.read_bytes() for file in files)


async def test_send__a_receiver_that_stops_releasing_bad_flow(tmp_path: Path) -> None:
    """It is alive and releases nothing: the requests time out and end the attempt, though not even ABORT has credit."""
    opener = replace(SMALL, protocol=replace(SMALL.protocol, request_timeout_s=0.5))
    async with begun(file_of(tmp_path, 40 * CHUNK_BYTES), opener=opener) as (sending, here, there):
        await answer(there, chunks=0)
        held = [await there.recv()]
        with pytest.raises(TransferInterruptedError, match="the receiver is alive, but a chunk ended with"):
            await asyncio.wait_for(sending, timeout=PATIENCE_S)
        assert not here.ended
        for message in held:
            message.release()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(here.close(), there.close())
