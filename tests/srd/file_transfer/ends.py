"""Shared by the tests of sending and receiving: both ends over loopback, and a scripted end for either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE, Offer, decode_untrusted, encode
from srd.file_transfer.receiving import FileReceiver, Inbox
from srd.file_transfer.sending import FileSender
from srd.peer import Peer
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, SMALL, content, pair, receive, send

TRANSFER = "0123456789abcdef" * 2
OFFER: dict[str, Any] = {
    "name": "a.bin",
    "size": 3000,
    "chunk_bytes": CHUNK_BYTES,
    "transfer": TRANSFER,
    "retry_for_s": 0,
    "files_left": 0,
}


@asynccontextmanager
async def ends(
    output: Path,
    *,
    overwrite: bool = False,
    mapped: bool = False,
    on_start: Callable[[Offer], None] = lambda _: None,
    retry_for_s: int = 0,
) -> AsyncIterator[tuple[FileSender, FileReceiver]]:
    async with pair(config=PLAIN if mapped else SMALL) as (_, _, here, there):
        sender = FileSender(here, on_progress=lambda _: None, mapped=mapped, retry_for_s=retry_for_s)
        inbox = Inbox(output, overwrite=overwrite)
        receiver = FileReceiver(there, inbox=inbox, on_start=lambda offer, _: on_start(offer))
        try:
            yield sender, receiver
        finally:
            await here.close()
            await there.close()
            sender.close()
            inbox.close()


async def send_control(peer: Peer, kind: str, **fields: object) -> None:
    await send(peer, encode(kind, **fields), immediate=CONTROL_MESSAGE)


async def send_raw(peer: Peer, body: bytes) -> None:
    await send(peer, body, immediate=CONTROL_MESSAGE)


async def receive_control(peer: Peer) -> dict[str, Any]:
    return decode_untrusted(await receive(peer))


async def put(peer: Peer, payload: bytes, *, index: int) -> None:
    await send(peer, payload, immediate=index)


def file_of(directory: Path, size_bytes: int, *, name: str = "a.bin", seed: int = 41) -> Path:
    path = directory / name
    path.write_bytes(content(size_bytes, seed=seed))
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def within_patience(*calls: Any) -> list[Any]:
    """Run calls concurrently; return results and exceptions."""
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(*calls, return_exceptions=True)
