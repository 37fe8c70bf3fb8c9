"""Shared by the tests of packet protection: two ends with the same secrets, and packets of a burst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from srd.proto.wire.data import HEADER_BYTES, Burst, write_headers
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.packets import DirectionKeys, Suite
from srd.secure.session import SecretLog, Session

ONE, OTHER = bytes(range(32)), bytes(range(100, 132))
CONTEXT = 0x1122334455667788


@dataclass
class Sealed:
    """An encrypted data packet."""

    header: bytes
    payload: bytes

    @property
    def datagram(self) -> bytes:
        return self.header + self.payload

    def flipped(self, bit: int) -> Sealed:
        raw = bytearray(self.datagram)
        raw[bit // 8] ^= 1 << bit % 8
        return Sealed(bytes(raw[:HEADER_BYTES]), bytes(raw[HEADER_BYTES:]))


def pair(
    *, suite: Suite = Suite.AES_256_GCM, now: float = 0.0, log_secret: SecretLog | None = None
) -> tuple[Session, Session]:
    return (
        Session(send_secret=ONE, receive_secret=OTHER, suite=suite, now=now, log_secret=log_secret),
        Session(send_secret=OTHER, receive_secret=ONE, suite=suite, now=now),
    )


def plain_headers(count: int, *, path: int, sequence: int, flags: int, message: int, segment: int) -> bytes:
    """The headers of a burst in plain text."""
    burst = Burst(
        "", path, sequence, CONTEXT, 5, count, 0, message, count * segment, 0, 0, 0, 0, count * segment, segment
    )
    burst.flags, burst.immediate = flags, 0xABCD1234
    out = bytearray(count * HEADER_BYTES)
    write_headers(burst, out=memoryview(out))
    return bytes(out)


def seal(
    session: Session,
    payloads: list[bytes],
    *,
    sequence: int = 0,
    path: int = 0,
    flags: int = 0,
    message: int = 9,
    now: float = 0.0,
) -> list[Sealed]:
    """Encrypt a burst."""
    headers = plain_headers(
        len(payloads), path=path, sequence=sequence, flags=flags, message=message, segment=len(payloads[0])
    )
    rows = [headers[at : at + HEADER_BYTES] for at in range(0, len(headers), HEADER_BYTES)]
    return seal_headers(session, rows, payloads, path=path, sequence=sequence, now=now)


def seal_headers(
    session: Session, headers: list[bytes], payloads: list[bytes], *, path: int, sequence: int, now: float = 0.0
) -> list[Sealed]:
    """Encrypt packets with any headers, with the numbers of a burst on a path: authentic, whatever the headers say."""
    size = HEADER_BYTES + len(payloads[0]) + TAG_BYTES
    packets = memoryview(bytearray(len(payloads) * size))
    for index, header in enumerate(headers):
        packets[index * size : index * size + HEADER_BYTES] = header
    sealed_bytes = session.seal_data(
        packets,
        [memoryview(payload) for payload in payloads],
        count=len(payloads),
        segment_bytes=len(payloads[0]),
        path=path,
        path_sequence=sequence,
        now=now,
    )
    starts = range(0, sealed_bytes, size)
    return [
        Sealed(bytes(packets[at : at + HEADER_BYTES]), bytes(packets[at + HEADER_BYTES : min(at + size, sealed_bytes)]))
        for at in starts
    ]


def unseal(session: Session, packet: Sealed, *, now: float = 0.0) -> tuple[bytes, bytes] | None:
    """Return header and payload in plain text, or None if the packet is not accepted."""
    header, out = bytearray(HEADER_BYTES), bytearray(len(packet.payload) - TAG_BYTES)
    if session.open_data_untrusted(
        memoryview(packet.datagram), out=memoryview(out), header=memoryview(header), now=now
    ):
        return bytes(header), bytes(out)
    return None


class Nonces:
    """Notes every nonce that is encrypted with, by key; fails at the second use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: set[tuple[bytes, bytes]] = set()
        self.keys: set[bytes] = set()
        real = DirectionKeys.__init__
        nonces = self

        class Recording:
            def __init__(self, aead: Any, key: bytes) -> None:
                self._aead, self._key = aead, key
                self.decrypt, self.decrypt_into = aead.decrypt, aead.decrypt_into

            def encrypt(self, nonce: bytes, *rest: Any) -> Any:
                nonces.note(self._key, nonce)
                return self._aead.encrypt(nonce, *rest)

            def encrypt_into(self, nonce: bytes, *rest: Any) -> Any:
                nonces.note(self._key, nonce)
                return self._aead.encrypt_into(nonce, *rest)

        def init(keys: DirectionKeys, secret: bytes, **options: Any) -> None:
            real(keys, secret, **options)
            keys.aead = Recording(keys.aead, secret)  # type: ignore[assignment]

        monkeypatch.setattr(DirectionKeys, "__init__", init)

    def note(self, key: bytes, nonce: bytes) -> None:
        assert (key, nonce) not in self.used, "a nonce was used twice with one key"
        self.used.add((key, nonce))
        self.keys.add(key)
