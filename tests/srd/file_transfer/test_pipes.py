"""Pipes over loopback: into a directory and to standard output, resumed, held up, and by ends that lie."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from srd.errors import PeerError
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.pipe_source import PipeSource
from srd.file_transfer.protocol import CHUNK_BYTES, MAX_PIPE_CHUNKS, PIPE_WINDOW, Offer
from srd.file_transfer.read_ahead import BATCHES
from srd.file_transfer.sending import FileEnd, FileSender, SentFile
from srd.file_transfer.sessions import TransferSessions
from srd.file_transfer.standard_output import StandardOutput
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.file_transfer.ends import (
    TRANSFER,
    answer,
    answered,
    begin,
    digest_of,
    end,
    ends,
    file_of,
    names,
    parted,
    put,
    put_file,
    receive_control,
    receiving,
    scripted,
    send_control,
    session,
)
from tests.srd.loopback import content, pair

PIPE: dict[str, Any] = {"pipe": True, "transfer": TRANSFER}
NAMED: dict[str, Any] = {**PIPE, "name": "a.tar"}
FIVE = content(5 * 1024 - 100, seed=53)


class Reader:
    """Reads a descriptor to its end in a thread, which waits at a gate first."""

    def __init__(self, fd: int, *, is_open: bool = True) -> None:
        self.gate = threading.Event()
        if is_open:
            self.gate.set()
        self._fd = fd
        self._found = bytearray()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.gate.wait(PATIENCE_S)
        while piece := os.read(self._fd, 1 << 16):
            with self._changed:
                self._found += piece
                self._changed.notify_all()
        os.close(self._fd)

    def wait_for(self, size_bytes: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._found) >= size_bytes, PATIENCE_S)

    def all(self) -> bytes:
        """Return what there was; its writers are closed."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return bytes(self._found)


@contextmanager
def standard_output(*, is_open: bool = True) -> Iterator[tuple[TransferSessions, Reader]]:
    """Give what receives to a pipe as standard output, which is closed behind the block, and the pipe's reader."""
    reading, writing = os.pipe()
    place, reader = StandardOutput(writing), Reader(reading, is_open=is_open)
    sessions = TransferSessions(place)
    try:
        yield sessions, reader
    finally:
        reader.gate.set()
        place.stop()
        sessions.close()
        os.close(writing)


@contextmanager
def outgoing(
    payload: bytes | None = None, *, name: str = "-"
) -> Iterator[tuple[OutgoingFile, Callable[[bytes], None]]]:
    """Give a pipe to send, and what writes into it: `payload` and its end, or pieces; an empty one is the end."""
    reading, writing = os.pipe()
    pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def work() -> None:
        with suppress(BrokenPipeError):
            while piece := pieces.get():
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(writing, rest) :]
        os.close(writing)

    writer = threading.Thread(target=work, daemon=True)
    writer.start()
    if payload is not None:
        pieces.put(payload)
        pieces.put(b"")
    file = OutgoingFile(Path("-"), name, transfer=TRANSFER, pipe_fd=reading)
    try:
        yield file, pieces.put
    finally:
        file.close()
        os.close(reading)
        pieces.put(b"")
        writer.join(PATIENCE_S)


def read_chunks(file: OutgoingFile) -> int:
    return 0 if file.source is None else file.source.hashed_chunks


def taken_chunks(file: OutgoingFile) -> int:
    return file.source._taken if isinstance(file.source, PipeSource) else 0


async def send(sender: FileSender, *files: OutgoingFile) -> list[FileEnd]:
    outcomes: list[FileEnd] = []
    await asyncio.wait_for(
        sender.send_all(files, on_end=lambda _, outcome: outcomes.append(outcome)), timeout=PATIENCE_S
    )
    return outcomes


async def finish(sender: Peer, payload: bytes, *, chunks: int) -> None:
    await send_control(sender, "end", files=[{"file": 0, "digest": digest_of(payload), "chunks": chunks}])


async def last_answer(sender: Peer) -> dict[str, Any]:
    """Return the next answer that is not about what was taken."""
    while True:
        message = await receive_control(sender)
        if message["kind"] != "answer":
            return message
        for each in message["files"]:
            if "taken" not in each:
                return dict(each)


# -- success --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7, (PIPE_WINDOW + 9) * CHUNK_BYTES])
async def test_pipe__into_a_directory(sessions: TransferSessions, output: Path, size_bytes: int) -> None:
    payload = content(size_bytes, seed=1)
    async with session(sessions) as (sender, record):
        with outgoing(payload, name="sub/a.tar") as (file, _):
            assert await send(sender, file) == [SentFile("sub/a.tar", size_bytes, "blake3", digest_of(payload))]
    (received,) = record.received
    assert (received.size, received.digest, received.path) == (size_bytes, digest_of(payload), output / "sub/a.tar")
    assert (output / "sub/a.tar").read_bytes() == payload
    assert (names(output), record.done) == (["sub"], 1)


@pytest.mark.parametrize("size_bytes", [0, 1, 3 * CHUNK_BYTES + 7, (PIPE_WINDOW + 9) * CHUNK_BYTES])
@pytest.mark.parametrize("is_pipe", [True, False])
async def test_standard_output__takes_a_pipe_or_a_file(tmp_path: Path, size_bytes: int, *, is_pipe: bool) -> None:
    payload = content(size_bytes, seed=1)
    with standard_output() as (sessions, reader):
        async with session(sessions) as (sender, record):
            if is_pipe:
                with outgoing(payload) as (file, _):
                    assert await send(sender, file) == [SentFile("-", size_bytes, "blake3", digest_of(payload))]
            else:
                await sender.send(file_of(tmp_path, size_bytes, seed=1))
        (received,) = record.received
        assert (received.size, received.digest, received.path) == (size_bytes, digest_of(payload), None)
    assert reader.all() == payload


async def test_pipe__is_sent_after_files_and_directories(
    tmp_path: Path, sessions: TransferSessions, output: Path
) -> None:
    path = file_of(tmp_path, 2 * CHUNK_BYTES + 1)
    async with session(sessions) as (sender, record):
        with outgoing(b"abc", name="b") as (pipe, _):
            file, directory = OutgoingFile(path, "d/a.bin", transfer="1" * 32), OutgoingFile(tmp_path, "d")
            outcomes = await send(sender, pipe, directory, file)
            assert [outcome.name for outcome in outcomes if isinstance(outcome, SentFile)] == ["d/a.bin", "d", "b"]
    assert record.done == 1
    assert ((output / "b").read_bytes(), (output / "d/a.bin").read_bytes()) == (b"abc", path.read_bytes())


# -- back pressure --------------------------------------------------------------------------------------------------


async def test_standard_output__a_reader_that_pauses_holds_the_sender_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has more than the window, though the pipe has no end before the reader goes on."""
    beyond: list[int] = []
    post = FileSender._post

    def watched(self: FileSender, offered: Any, chunk: Any) -> None:
        beyond.append(chunk.index - offered.taken)
        post(self, offered, chunk)

    monkeypatch.setattr(FileSender, "_post", watched)
    payload = content(2 * PIPE_WINDOW * CHUNK_BYTES, seed=2)
    with standard_output(is_open=False) as (sessions, reader), outgoing(payload) as (file, _):
        async with session(sessions) as (sender, _):
            sending = asyncio.ensure_future(send(sender, file))
            await until(lambda: read_chunks(file) > PIPE_WINDOW + BATCHES)
            assert isinstance(file.source, PipeSource)
            assert file.source.hashed_chunks == PIPE_WINDOW + BATCHES + 1
            reader.gate.set()
            assert isinstance((await sending)[0], SentFile)
    assert reader.all() == payload
    assert max(beyond) < PIPE_WINDOW


# -- attempts -------------------------------------------------------------------------------------------------------


async def interrupted(sender: FileSender, sending: asyncio.Future[list[FileEnd]]) -> None:
    """End an attempt as a chunk that failed does."""
    sender._failed = Status.FLUSHED
    sender._changed.notify()
    with pytest.raises(TransferInterruptedError):
        await sending


@pytest.mark.parametrize("has_directory", [True, False])
async def test_pipe__the_next_attempt_resumes(sessions: TransferSessions, output: Path, *, has_directory: bool) -> None:
    """What was taken is not sent again; what was read and not taken is."""
    payload = content(9 * CHUNK_BYTES + 5, seed=4)
    with standard_output() as (to_reader, reader), outgoing(name="a.tar") as (file, write):
        place = sessions if has_directory else to_reader
        async with session(place, retry_for_s=60) as (sender, record):
            sending = asyncio.ensure_future(send(sender, file))
            write(payload[: 5 * CHUNK_BYTES])
            await until(lambda: file.acked_bytes == 5 * CHUNK_BYTES)
            await interrupted(sender, sending)
        assert [is_kept for _, files in record.lost for _, is_kept in files] == [True]
        async with session(place, retry_for_s=60) as (sender, record):
            write(payload[5 * CHUNK_BYTES :])
            write(b"")
            assert await send(sender, file) == [SentFile("a.tar", len(payload), "blake3", digest_of(payload))]
        assert [resumed_bytes for _, resumed_bytes in record.resumed] == [5 * CHUNK_BYTES]
    assert (output / "a.tar").read_bytes() == payload if has_directory else reader.all() == payload
    assert names(output) == (["a.tar"] if has_directory else [])


async def test_pipe__a_restarted_receiver_has_lost_it_bad_flow(output: Path) -> None:
    with outgoing(name="a.tar") as (file, write):
        async with ends(output, retry_for_s=60) as (sender, _):
            sending = asyncio.ensure_future(send(sender, file))
            write(bytes(PIPE_WINDOW * CHUNK_BYTES))
            await until(lambda: taken_chunks(file) > 0)
            await interrupted(sender, sending)
        assert names(output) == []
        async with ends(output, retry_for_s=60) as (sender, _):
            (outcome,) = await send(sender, file)
        assert str(outcome) == "-: the receiver has lost what it had, and standard input cannot be read again"
        write(b"")


async def test_pipe__a_received_one_is_confirmed_again(sessions: TransferSessions, output: Path) -> None:
    """The sender lost its peer before the answer."""
    for chunks_there in (0, 5):
        async with scripted(sessions) as (sender, future, record):
            accepted = await begin(sender, NAMED, chunk_bytes=1024)
            assert accepted == {"file": 0, "chunks": chunks_there, "in_order": True}
            if not chunks_there:
                await put_file(sender, FIVE, chunk_bytes=1024)
            await finish(sender, FIVE, chunks=5)
            assert await last_answer(sender) == {"file": 0, "digest": digest_of(FIVE)}
            await parted(sender, future)
            assert record.failures == []
    assert (output / "a.tar").read_bytes() == FIVE
    assert names(output) == ["a.tar"]


async def test_expire__of_a_pipe_removes_it(sessions: TransferSessions, output: Path) -> None:
    async with scripted(sessions) as (sender, _, record):
        await begin(sender, NAMED, chunk_bytes=1024, retry_for_s=60)
        await put_file(sender, FIVE, chunk_bytes=1024, indices=[0])
        await send_control(sender, "abort", reason="a chunk failed", again=True)
        await until(lambda: record.lost)
        assert await sessions.expire(TRANSFER) is None  # too early
        assert len(names(output)) == 1
        offer, store, _ = sessions._kept[TRANSFER]
        sessions._kept[TRANSFER] = (offer, store, 0.0)
        expired = await sessions.expire(TRANSFER)
        assert expired is not None
        assert expired.name == "a.tar"
        assert names(output) == []


# -- senders that lie -----------------------------------------------------------------------------------------------


async def test_standard_output__a_file_of_one_chunk_without_its_digest_is_not_written_bad_flow() -> None:
    with standard_output() as (sessions, reader):
        async with scripted(sessions) as (sender, future, _):
            await begin(sender, size=3)
            await put(sender, b"abc", index=0)
            await end(sender, b"abc")
            await parted(sender, future)
    assert reader.all() == b""


@pytest.mark.parametrize(
    ("chunks", "digest", "reason"),
    [
        (5, digest_of(b"other"), "BLAKE3 is"),
        (None, digest_of(FIVE), "without its chunks"),
        (4, digest_of(FIVE), "a pipe, before its beginning, or twice"),
        (MAX_PIPE_CHUNKS + 1, digest_of(FIVE), "without its chunks"),
    ],
)
async def test_pipe__a_wrong_end_bad_flow(output: Path, chunks: int | None, digest: str, reason: str) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, NAMED, chunk_bytes=1024)
        await put_file(sender, FIVE, chunk_bytes=1024)
        while (await answered(sender))["taken"] < 3:
            pass
        await send_control(sender, "end", files=[{"file": 0, "digest": digest, "chunks": chunks}])
        assert reason in (await last_answer(sender))["reason"]
        await parted(sender, future)
    assert names(output) == []


async def test_pipe__ends_twice_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, NAMED, chunk_bytes=1024)
        for _ in range(2):
            await finish(sender, FIVE, chunks=5)
        refused = await last_answer(sender)
        assert (refused["kind"], "twice" in refused["reason"]) == ("refuse", True)
        await parted(sender, future)
    assert names(output) == []


async def test_pipe__a_file_after_it_bad_flow(output: Path) -> None:
    async with receiving(output) as (sender, future, _):
        await begin(sender, NAMED)
        refused = await begin(sender, {**NAMED, "transfer": "1" * 32})
        assert (refused["kind"], refused["reason"]) == ("refuse", "a file after a pipe was offered")
        await parted(sender, future)
    assert names(output) == []


# -- receivers that lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [{"taken": 2}, {"taken": -1}, {"taken": True}, {"taken": None}, {"chunks": 1, "in_order": True}],
    ids=str,
)
async def test_send__a_receiver_that_has_what_it_cannot_have_bad_flow(lie: dict[str, Any]) -> None:
    async with pair() as (_, _, here, there):
        sender = FileSender(here)
        with outgoing() as (file, write):
            sending = asyncio.ensure_future(send(sender, file))
            await receive_control(there)
            if "taken" in lie:
                await answer(there, chunks=0, in_order=True)
                write(b"a")
                with await there.recv():
                    pass
            await answer(there, **lie)
            with pytest.raises(TransferError, match="the receiver has chunks that it cannot have"):
                await sending
            write(b"")
        await here.close()
        await there.close()
        sender.close()


async def test_send__a_peer_that_is_lost_while_the_pipe_is_silent_bad_flow() -> None:
    """The thread that waits for the pipe is stopped."""
    async with pair() as (_, _, here, there):
        sender = FileSender(here)
        with outgoing() as (file, write):
            sending = asyncio.ensure_future(send(sender, file))
            await receive_control(there)
            await answer(there, chunks=0, in_order=True)
            await there.close()
            with pytest.raises(PeerError):
                await sending
            await here.close()
            sender.close()
            write(b"")


def test_inbox__keeps_a_limited_number() -> None:
    with standard_output() as (sessions, _):
        offers = [Offer("-", 0, 1024, f"{number:032x}", is_pipe=True) for number in range(100)]
        store = sessions.place.store(offers[0], stop=threading.Event())
        for offer in offers:
            sessions.keep(offer, store)
        assert list(sessions._kept) == [offer.transfer for offer in offers[-64:]]
