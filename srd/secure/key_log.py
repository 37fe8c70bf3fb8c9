"""The key log: the secrets of peers in a file, for debugging, as SSLKEYLOGFILE is for TLS.

$SRDKEYLOGFILE names the file. A line is "SRD_SECRET CONTEXT SUITE SECRET": the context of packets (hexadecimal), the
number of the suite, and the first secret of the direction in which packets have that context (hexadecimal). Whoever has
the file can read the packets of these peers, and forge them while they are open.

A program that looks at captures (a dissector, a scapy layer, a test) reads the file with `KeyLog`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag

from srd.proto.base.errors import PacketError, UsageError
from srd.proto.wire.data import HEADER_BYTES, PREFIX_BYTES, PacketType, expand
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES
from srd.secure.packets import CONTROL, DirectionKeys, Suite
from srd.secure.session import SecretLog

VARIABLE: Final = "SRDKEYLOGFILE"
WORD: Final = "SRD_SECRET"
_CONTEXT_AT: Final = 8


def secret_log() -> SecretLog | None:
    """Return what logs the secrets of peers, if $SRDKEYLOGFILE is set. Raises UsageError if it cannot be written."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        _append(path, b"")
    except OSError as error:
        raise UsageError(f"{VARIABLE}={path}: cannot be written: {error.strerror}; unset it, or name a file") from error
    return lambda context, suite, secret: _log(path, f"{WORD} {context:016x} {suite:d} {secret.hex()}\n")


def _log(path: str, line: str) -> None:
    with suppress(OSError):  # a full disk must not end peers
        _append(path, line.encode())


def _append(path: str, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Direction:
    """What is known of the packets with one context."""

    keys: list[DirectionKeys]
    """Of the present generation, the next one, and the one before, if any."""
    phase: int = 0
    """KEY_PHASE in odd generations."""
    next_numbers: dict[int, int] = field(default_factory=dict)
    """By path, or CONTROL: one more than the highest number that was seen."""

    def candidates(self, phase: int) -> list[DirectionKeys]:
        """Return the keys that a packet of this phase may have been encrypted with."""
        return self.keys[:1] if phase == self.phase else self.keys[1:]

    def on_authentic(self, keys: DirectionKeys) -> None:
        """Note that a packet was encrypted with these keys."""
        if keys is self.keys[1]:
            self.keys = [keys, keys.next(), self.keys[0]]
            self.phase ^= KEY_PHASE


class KeyLog:
    """Decrypts recorded packets, in about the order in which they were sent, from the opening of their peer on."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Take the lines of a key log; others than those of secrets are skipped. Raises UsageError for invalid ones."""
        self._directions: dict[int, _Direction] = {}
        for number, line in enumerate(lines, 1):
            word, *rest = line.split() or [""]
            if word != WORD:
                continue
            try:
                context, suite, secret = int(rest[0], 16), Suite(int(rest[1])), bytes.fromhex(rest[2])
            except (ValueError, IndexError) as error:
                raise UsageError(f"line {number}: is no {WORD} with context, suite and secret") from error
            if context not in self._directions:  # both ends of a peer may have logged into one file
                keys = DirectionKeys(secret, suite=suite)
                self._directions[context] = _Direction([keys, keys.next()])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key log. Raises UsageError."""
        try:
            return cls(path.read_text().splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from error
        except UsageError as error:
            raise UsageError(f"{path}, {error}") from error

    def open_untrusted(self, datagram: bytes) -> bytes:
        """Return the packet in a datagram as plain text has it.

        Raises PacketError if the datagram is not encrypted, its secret not known, or its tag wrong.
        """
        kind = datagram[1] if len(datagram) >= PREFIX_BYTES + TAG_BYTES else None
        direction = self._directions.get(int.from_bytes(datagram[_CONTEXT_AT:PREFIX_BYTES], "big"))
        if direction is None or kind not in (PacketType.DATA, PacketType.PROTECTED):
            raise PacketError("a datagram is not encrypted, or its secret is not known")
        head_bytes, path = (HEADER_BYTES, datagram[3]) if kind == PacketType.DATA else (PREFIX_BYTES, CONTROL)
        head, sealed = datagram[:head_bytes], datagram[head_bytes:]
        expected = direction.next_numbers.get(path, 0)
        number = expand(int.from_bytes(datagram[4:8], "big"), near=expected)
        for keys in direction.candidates(datagram[2] & KEY_PHASE):
            try:
                plain = keys.aead.decrypt(keys.nonce(path, number), sealed, head)
            except (InvalidTag, ValueError):  # ValueError: too short for a tag
                continue
            direction.on_authentic(keys)
            direction.next_numbers[path] = max(expected, number + 1)
            if kind == PacketType.PROTECTED:
                return plain
            header = bytearray(head)
            keys.restore(memoryview(header))
            return bytes(header) + plain
        raise PacketError("a datagram is not authentic")
