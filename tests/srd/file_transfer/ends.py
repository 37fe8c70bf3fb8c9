"""Shared by the tests of sending and receiving: both ends over loopback, and a scripted end for either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from blake3 import blake3

from srd.file_transfer.digests import chunk_digest
from srd.file_transfer.directory import Directory
from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE, Offer, decode_untrusted, encode
from srd.file_transfer.receiving import FileReceiver
from srd.file_transfer.sending import FileSender
from srd.file_transfer.sessions import TransferSessions
from srd.file_transfer.watcher import ReceivedFile, Watcher
from srd.peer import Peer
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, SMALL, content, pair, receive, send

TRANSFER = "0123456789abcdef" * 2
FILE: dict[str, Any] = {"name": "a.bin", "size": 3000, "transfer": TRANSFER}
OFFER: dict[str, Any] = {
    "files": [FILE],
    "sender": "5" * 32,
    "chunk_bytes": CHUNK_BYTES,
    "retry_for_s": 0,
    "files_left": 0,
    "bytes_left": 0,
}


def offer_fields(*files: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """An OFFER of FILE, or of several, with changed fields of the message or of the single file."""
    of_message = {key: value for key, value in changed.items() if key in OFFER}
    of_file = {key: value for key, value in changed.items() if key not in OFFER}
    return {**OFFER, "files": list(files) or [{**FILE, **of_file}], **of_message}


def digest_of(payload: bytes) -> str:
    return blake3(payload).hexdigest()


class Record(Watcher):
    """What a session has told."""

    def __init__(self, *, on_resume: Callable[[Offer], None] = lambda _: None) -> None:
        self.resumed: list[tuple[Offer, int]] = []
        self.received: list[ReceivedFile] = []
        self.identical: list[str] = []
        self.failures: list[tuple[str, Exception, bool]] = []
        self.lost: list[tuple[Exception, list[tuple[Offer, bool]]]] = []
        self.warnings: list[str] = []
        self.done = 0
        self._on_resume = on_resume

    def on_resume(self, offer: Offer, resumed_bytes: int) -> None:
        self.resumed.append((offer, resumed_bytes))
        self._on_resume(offer)

    def on_received(self, received: ReceivedFile) -> None:
        self.received.append(received)

    def on_identical(self, offer: Offer, digest: str) -> None:  # noqa: ARG002
        self.identical.append(offer.name)

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:
        self.failures.append((offer.name, error, is_kept))

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        self.lost.append((error, files))

    def on_done(self) -> None:
        self.done += 1

    def warn(self, line: str) -> None:
        self.warnings.append(line)


@asynccontextmanager
async def ends(
    output: Path,
    *,
    overwrite: bool = False,
    mapped: bool = False,
    on_resume: Callable[[Offer], None] = lambda _: None,
    retry_for_s: int = 0,
) -> AsyncIterator[tuple[FileSender, Record]]:
    """Give a sender and the record of the receiver; when it ends, the receiver has ended, too."""
    async with pair(config=PLAIN if mapped else SMALL) as (_, _, here, there):
        sender = FileSender(here, mapped=mapped, retry_for_s=retry_for_s)
        sessions = TransferSessions(Directory(output, overwrite=overwrite))
        record = Record(on_resume=on_resume)
        receiving = asyncio.ensure_future(FileReceiver(there, sessions=sessions, watcher=record).receive())
        try:
            yield sender, record
        finally:
            await here.close()
            await asyncio.wait([receiving], timeout=PATIENCE_S)
            await there.close()
            sender.close()
            sessions.close()


async def send_control(peer: Peer, kind: str, **fields: object) -> None:
    await send(peer, encode(kind, **fields), immediate=CONTROL_MESSAGE)


async def send_raw(peer: Peer, body: bytes) -> None:
    await send(peer, body, immediate=CONTROL_MESSAGE)


async def receive_control(peer: Peer) -> dict[str, Any]:
    return decode_untrusted(await receive(peer))


async def answer(peer: Peer, **fields: object) -> None:
    """Answer for the first file."""
    await send_control(peer, "answer", files=[{"file": 0, **fields}])


async def put(peer: Peer, payload: bytes, *, index: int) -> None:
    await send(peer, payload, immediate=index)


async def put_file(peer: Peer, payload: bytes, *, chunk_bytes: int, first: int = 0, indices: Any = None) -> None:
    """Send chunks of a file, and their digests if it has several."""
    count = -(-len(payload) // chunk_bytes)
    for index in range(count) if indices is None else indices:
        chunk = payload[index * chunk_bytes : (index + 1) * chunk_bytes]
        if count > 1:
            digests = [chunk_digest([memoryview(chunk)]).hex()]
            await send_control(peer, "hashes", first=first + index, digests=digests)
        await put(peer, chunk, index=first + index)


async def end(peer: Peer, payload: bytes, *, file: int = 0) -> None:
    await send_control(peer, "end", files=[{"file": file, "digest": digest_of(payload)}])


def file_of(directory: Path, size_bytes: int, *, name: str = "a.bin", seed: int = 41) -> Path:
    path = directory / name
    path.write_bytes(content(size_bytes, seed=seed))
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
