"""A card as the control plane sees it: it verifies documents, and answers. Also as a process of its own.

    python fake_card.py ADDRESS KEY.pub.pem

prints a JSON line when it listens, and one for each document.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from nitro_emu.errors import VpcError
from nitro_emu.trust.key_files import read_public_key
from nitro_emu.vpc.document import MapDocument, open_map_untrusted
from tests.patience import PATIENCE_S

LINE_LIMIT = 2 << 20
Answer = Callable[[MapDocument], bytes | None]


def ok(document: MapDocument) -> bytes:
    return json.dumps({"ok": {"version": document.version}}).encode() + b"\n"


class FakeCard:
    """Listens at an address; keeps the documents that it could open.

    `answer` returns what is sent for a document; None: nothing, the connection stays open. `closes`: it ends after one.
    """

    def __init__(
        self,
        address: str,
        *,
        key: EllipticCurvePublicKey,
        answer: Answer = ok,
        closes: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.address = address
        self.answer = answer
        self.documents: asyncio.Queue[MapDocument] = asyncio.Queue()
        self.before_answer: Callable[[], Awaitable[object]] | None = None
        self._key = key
        self._closes = closes
        self._now = now
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self.address.startswith("/"):
            self._server = await asyncio.start_unix_server(self._serve, self.address, limit=LINE_LIMIT)
        else:
            host, _, port = self.address.rpartition(":")
            self._server = await asyncio.start_server(self._serve, host, int(port), limit=LINE_LIMIT)
            self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def next(self) -> MapDocument:
        async with asyncio.timeout(PATIENCE_S):
            return await self.documents.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (line := await reader.readline()) and await self._answer(line, writer) and not self._closes:
                pass
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> bool:
        request = json.loads(line)
        if self.before_answer is not None:
            await self.before_answer()
        assert request.keys() == {"command", "document"}
        assert request["command"] == "map"
        try:
            data = base64.b64decode(request["document"], validate=True)
            document = open_map_untrusted(data, key=self._key, now_s=self._now())
        except VpcError as error:
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
            return True
        if (reply := self.answer(document)) is not None:
            writer.write(reply)
            await writer.drain()
        self.documents.put_nowait(document)
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _print(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


async def _main(address: str, key_file: str) -> None:
    async with FakeCard(address, key=read_public_key(Path(key_file))) as card:
        _print("listening", address=card.address)
        while True:
            document = await card.documents.get()
            vpcs = {name: sorted(vpc.interfaces) for name, vpc in document.map.vpcs.items()}
            _print("document", version=document.version, issued_at_s=document.issued_at_s, vpcs=vpcs)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
