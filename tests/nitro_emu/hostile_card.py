"""A card with a key that the mapping has, and an attacker's software: the transport, and none of the card's rules."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.peers.introduction import INTRODUCTION_KEY
from srd.config import EndpointConfig
from srd.engine import Engine
from srd.proto.config import ProtocolConfig
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    PeerOpened,
    WriteReceived,
)
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.config import Keys, Plain
from srd.secure.key_log import VARIABLE as KEY_LOG
from srd.secure.noise import public_bytes
from tests.patience import PATIENCE_S

GUESSES_IN_FLIGHT: Final = 16
"""What is refused is sent again: more at a time take longer."""
ROOM_BYTES: Final = 1 << 16


class Answer(NamedTuple):
    """What came of a HELLO."""

    status: Status
    """Of the message itself."""
    is_welcome: bool
    has_ended: bool


class _Landing:
    """Memory that its reads land in; nobody else may touch it."""

    def __init__(self) -> None:
        self.bytes = np.zeros(ROOM_BYTES, np.uint8)

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        del key
        return int(self.bytes.ctypes.data) + offset if offset + length <= ROOM_BYTES else None

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        del key, peer, offset, length
        return None

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        del key, peer, offset, length
        return None


class HostileCard:
    """Runs in a thread with an event loop of its own, for the block. Coroutines are given to `do` or `begin`."""

    def __init__(
        self, address: str, *, key: X25519PrivateKey, home: Path, is_plain: bool = False, opens_within_s: float = 10.0
    ) -> None:
        """`address`: of its packets; `key`: the card's; `home`: for what it knows of hosts; `is_plain`: no keys."""
        self.address = address
        self._opens_within_s = opens_within_s
        self._is_plain = is_plain
        self.key = key
        self.landing = _Landing()
        self.engine: Engine
        self._home = home
        self.key_log = home / "secrets"
        """The keys of its peers, as `srd.secure.key_log` writes them."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._opened: set[int] = set()
        self._ended: dict[int, Status] = {}
        self._welcomed: set[int] = set()
        self._done: dict[int, Status] = {}  # by request
        self._numbers = itertools.count(1)
        self._payload = np.zeros(ROOM_BYTES, np.uint8)
        self._notify = asyncio.Event()

    @property
    def public_key(self) -> bytes:
        return public_bytes(self.key)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have it do something, and return the result."""
        return self.begin(work).result(PATIENCE_S)

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Have it do something while the caller goes on."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, PATIENCE_S), self._loop)

    # -- what it can do -----------------------------------------------------------------------------------------------

    async def open(self, host: str, port: int) -> int:
        """Open a peer; return its number. Raises ConnectionRefusedError."""
        number = self.engine.connect((host, port), family=socket.AF_INET, name=f"{host}:{port}")
        await self._until(lambda: number in self._opened or number in self._ended)
        if number in self._ended:
            raise ConnectionRefusedError(self._ended[number].name)
        return number

    async def say(self, peer: int, message: bytes) -> Answer:
        """Send what is, or claims to be, a HELLO."""
        status = await self.post(peer, content=message, key=INTRODUCTION_KEY)
        if status is Status.OK:
            await self._until(lambda: peer in self._welcomed or peer in self._ended)
        return Answer(status, peer in self._welcomed, peer in self._ended)

    async def post(
        self, peer: int, *, key: int, content: bytes = b"", opcode: Opcode = Opcode.SEND, offset: int = 0,
        immediate: int | None = None,
    ) -> Status:  # fmt: skip
        """Post a request, and return how it ended."""
        request = self._post(peer, key=key, content=content, opcode=opcode, offset=offset, immediate=immediate)
        await self._until(lambda: request in self._done)
        return self._done.pop(request)

    def _post(self, peer: int, *, key: int, content: bytes, opcode: Opcode, offset: int, immediate: int | None) -> int:
        request = next(self._numbers)
        payload = np.frombuffer(content, np.uint8) if content else self._payload[:0]
        self._kept = payload
        self.engine.post(
            peer,
            WorkRequest(
                request, len(content), int(payload.ctypes.data), opcode=opcode, key=key, offset=offset,
                immediate=immediate,
            ),
        )  # fmt: skip
        return request

    async def guess(self, peer: int, guesses: Iterable[tuple[Opcode, int, int]]) -> Counter[Status]:
        """Post a request of eight bytes for each (operation, key, offset), many at a time; count how they end."""
        found: Counter[Status] = Counter()
        waiting: set[int] = set()
        for opcode, key, offset in guesses:
            payload = int(self._payload.ctypes.data)
            request = next(self._numbers)
            self.engine.post(peer, WorkRequest(request, 8, payload, opcode=opcode, key=key, offset=offset))
            waiting.add(request)
            if len(waiting) >= GUESSES_IN_FLIGHT:
                await self._take(waiting, found, left=GUESSES_IN_FLIGHT // 2)
        await self._take(waiting, found, left=0)
        return found

    async def _take(self, waiting: set[int], found: Counter[Status], *, left: int) -> None:
        def take() -> bool:
            done = waiting & self._done.keys()
            waiting.difference_update(done)
            found.update(self._done.pop(request) for request in done)
            return len(waiting) <= left

        await self._until(take)

    def has_ended(self, peer: int) -> bool:
        return peer in self._ended

    async def ended(self, peer: int) -> Status:
        """Wait for the end of a peer."""
        await self._until(lambda: peer in self._ended)
        return self._ended[peer]

    async def close_peer(self, peer: int) -> None:
        self.engine.close_peer(peer)
        await self.ended(peer)

    # -- events -------------------------------------------------------------------------------------------------------

    async def _until(self, condition: Any) -> None:
        while not condition():
            self._notify.clear()
            await self._notify.wait()

    def _on_event(self, event: Event) -> None:
        match event:
            case PeerOpened():
                self._opened.add(event.peer)
            case PeerEnded():
                self._ended[event.peer] = event.status
            case Completion():
                self._done[event.request] = event.status
            case BatchCompletion():
                self._done.update(dict.fromkeys(range(event.request, event.request + event.count), Status.OK))
            case MessageReceived():
                if event.key == INTRODUCTION_KEY:
                    self._welcomed.add(event.peer)
                self.engine.release(event.peer, event.extents, event.length, 1)
            case MessagesReceived():
                self.engine.release(event.peer, (event.extent,), event.count * event.length, event.count)
            case WriteReceived():
                self.engine.release(event.peer, (), 0, 1)
        self._notify.set()

    async def _start(self) -> None:
        keys = Keys(private_key=self.key, known_hosts=self._home / "known_hosts")
        security = Plain() if self._is_plain else keys
        protocol = ProtocolConfig(handshake_timeout_s=self._opens_within_s)
        config = EndpointConfig(protocol=protocol, security=security, adaptive_poll_s=0.0)
        with patch.dict(os.environ, {KEY_LOG: str(self.key_log)}):
            self.engine = Engine(
                config, (self.address, 0), family=socket.AF_INET, accepting=True, memory=self.landing,
                on_event=self._on_event, on_failure=print,
            )  # fmt: skip

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def close() -> None:
            self.engine.close()

        self.do(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
