"""The first messages over a peer: the initiator names itself (HELLO), the responder lets it in or not (WELCOME).

Both are messages with `INTRODUCTION_KEY`, over a peer whose packets are authenticated. A HELLO is the encapsulation of
all that follows over the peer: VPC, and private addresses of source and destination, as GIDs. Nothing else is accepted
from a peer before its HELLO was, and an initiator posts nothing before it has a WELCOME. Either may carry a document of
attestation. Its nonce is `binding`: both ends' keys and random contexts, so that it can be made for this peer only.

    HELLO     version u8 | 3 zero bytes | VPC id u32 | mapping's version u64 | source GID | destination GID | document
    WELCOME   version u8 | 3 zero bytes | document
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nitro_emu.errors import AbiError
from nitro_emu.gid import GID_BYTES
from nitro_emu.peers.attestation import PeerAttestation
from srd.engine import Engine
from srd.errors import UsageError

INTRODUCTION_KEY: Final = 0
"""The key of these messages. No queue pair has the number 0."""
INTRODUCTION_REQUEST: Final = -1
"""The number of their work requests; others begin with 0."""
MAX_INTRODUCTION_BYTES: Final = 16 << 10
"""A security chip's document with its chain of certificates has 4 to 6 KiB."""
INTRODUCTION_VERSION: Final = 1

_HELLO: Final = struct.Struct(f">B3xIQ{GID_BYTES}s{GID_BYTES}s")
_WELCOME: Final = struct.Struct(">B3x")


@dataclass(frozen=True, slots=True)
class VfHello:
    """Who sends over a peer, and to whom."""

    vpc_id: int
    """0: without VPCs; then the GIDs are those of the cards' own addresses."""
    source: bytes
    destination: bytes
    document: bytes = b""
    """An attestation document; empty: none."""
    map_version: int = 0
    """Of the mapping that the initiator's card goes by; 0: none."""

    def pack(self) -> bytes:
        """Return the message."""
        fixed = _HELLO.pack(INTRODUCTION_VERSION, self.vpc_id, self.map_version, self.source, self.destination)
        return fixed + self.document


def hello_untrusted(message: bytes) -> VfHello:
    """Return the HELLO in a message. Raises AbiError."""
    if len(message) < _HELLO.size:
        raise AbiError(f"hello: {len(message)} bytes; it has at least {_HELLO.size}")
    version, vpc_id, map_version, source, destination = _HELLO.unpack_from(message)
    _check_version(version)
    return VfHello(vpc_id, source, destination, message[_HELLO.size :], map_version)


def pack_welcome(document: bytes) -> bytes:
    """Return a WELCOME with an attestation document, or with none."""
    return _WELCOME.pack(INTRODUCTION_VERSION) + document


def welcome_untrusted(message: bytes) -> bytes:
    """Return the attestation document in a WELCOME. Raises AbiError."""
    if len(message) < _WELCOME.size:
        raise AbiError(f"welcome: {len(message)} bytes; it has at least {_WELCOME.size}")
    _check_version(message[0])
    return message[_WELCOME.size :]


def binding(*, initiator: tuple[bytes, int], responder: tuple[bytes, int], attester_initiates: bool) -> bytes:
    """Return the nonce of a document for one peer. Each end: its static public key, and the context that it chose."""
    digest = hashlib.sha384(b"open-srd introduction\0")
    for key, context in (initiator, responder):
        digest.update(len(key).to_bytes(2, "big") + key + context.to_bytes(8, "big"))
    digest.update(bytes([attester_initiates]))
    return digest.digest()


class Proofs:
    """Makes this end's documents, and checks those of peers. `initiates`: whether this end has opened the peer."""

    def __init__(self, *, engine: Callable[[], Engine], attestation: PeerAttestation, public_key: bytes) -> None:
        """`public_key`: this end's."""
        self._engine = engine
        self._attestation = attestation
        self._public_key = public_key
        self._tasks: dict[int, asyncio.Task[None]] = {}  # that wait for a document, by peer

    def close(self) -> None:
        """Wait for no document any more."""
        for task in self._tasks.values():
            task.cancel()

    def on_ended(self, peer: int) -> None:
        """Wait for no document for a peer any more."""
        if (task := self._tasks.pop(peer, None)) is not None:
            task.cancel()

    def key_of(self, peer: int) -> bytes:
        """Return the public key that a peer has proven to have; nothing without keys."""
        engine = self._engine()
        return engine.trust.identity(engine.core.peer(peer).credential).public_key

    def check_untrusted(self, document: bytes, *, peer: int, initiates: bool) -> None:
        """Raise TrustError unless a peer's document is what is required."""
        nonce = self._nonce(peer, initiates=initiates, is_own=False)
        self._attestation.check_untrusted(document, nonce=nonce, public_key=self.key_of(peer))

    def with_document(self, use: Callable[[bytes], None], *, peer: int, initiates: bool) -> None:
        """Call `use` with this card's document for a peer, at once without a chip, unless the peer ends before."""
        if not self._attestation.has_chip:
            _use(b"", use)
            return
        nonce = self._nonce(peer, initiates=initiates, is_own=True)
        self._tasks[peer] = asyncio.get_running_loop().create_task(self._attest(peer, nonce, use))

    async def _attest(self, peer: int, nonce: bytes, use: Callable[[bytes], None]) -> None:
        document = await self._attestation.document(nonce=nonce, public_key=self._public_key)
        self._tasks.pop(peer, None)
        _use(document, use)

    def _nonce(self, peer: int, *, initiates: bool, is_own: bool) -> bytes:
        """Return the nonce of this end's document for a peer, or of the peer's for this end."""
        core = self._engine().core.peer(peer)
        here, there = (self._public_key, core.own_context), (self.key_of(peer), core.remote_context)
        initiator, responder = (here, there) if initiates else (there, here)
        return binding(initiator=initiator, responder=responder, attester_initiates=initiates is is_own)


def _use(document: bytes, use: Callable[[bytes], None]) -> None:
    with suppress(UsageError):  # the peer has ended, or is being closed
        use(document)


def _check_version(version: int) -> None:
    if version != INTRODUCTION_VERSION:
        raise AbiError(f"version: {version} is not {INTRODUCTION_VERSION}, which this card speaks")
