"""The keys of one direction: what encrypts and decrypts packets, a burst a call.

Rules.
1. The nonce is the IV, added bit by bit to the path (a byte; `CONTROL` for control packets) and the full path sequence
   (64 bits). A sequence that is not above all of its path that these keys have sealed is refused. The associated data
   is the header, or the prefix of a control packet.
2. Headers stay readable but for the one field that the application chooses: the immediate is added bit by bit to the
   first four bytes of AES(immediates' key, message number). So it is encrypted alike in every packet of its message. In
   an ABORTED packet that field has the reason instead, and is readable: two values must not be encrypted alike.
3. Data is encrypted by `srd.secure._aead`, which is C around the system's libcrypto and without the interpreter's lock,
   where that was compiled; by `cryptography`, packet by packet, where it was not, and for packets beyond
   `LARGE_BYTES` if its libcrypto is the faster one there (`large_by_cryptography`). Both write the same bytes.
4. Keys in C are erased with the object that has them: those of an old generation are.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES, continued_untrusted

try:
    from srd.secure import _aead
except ImportError:  # sources, no compiler, or no libcrypto
    HAS_NATIVE = False
else:
    HAS_NATIVE = True

LARGE_BYTES: Final = 4096
"""Payloads up to this are encrypted in C, in a third to two thirds of the time. Beyond, it depends on the processor:
with AVX-512, for which OpenSSL before 3.1 has no code, `cryptography` takes 1.05 us for 8,900 bytes, Debian 12's
libcrypto 1.74 (2026-11-27)."""
CONTROL: Final = 255
"""Stands for the path in the nonce of a control packet; data has path numbers below 128."""
_FLAGS_AT: Final = 2
_MESSAGE_AT: Final = 28
_IMMEDIATE_AT: Final = 36
_TRIALS: Final = 20


class Suite(IntEnum):
    """What encrypts packets. Agreed on in the handshake."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2
    """For processors without instructions for AES. Immediates are encrypted by AES nevertheless: they are short."""


def library() -> str:
    """Return what encrypts bursts, for people."""
    return f"in C, by {_aead.LIBRARY}" if HAS_NATIVE else "packet by packet, by cryptography"


def derive(secret: bytes, label: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand (RFC 5869) of a secret."""
    return hmac.digest(secret, label + b"\x01", "sha256")


class DirectionKeys:
    """The keys of one direction and one generation."""

    def __init__(self, secret: bytes, *, suite: Suite) -> None:
        key = derive(secret, b"srd key")
        self.aead = AESGCM(key) if suite is Suite.AES_256_GCM else ChaCha20Poly1305(key)
        self.iv = int.from_bytes(derive(secret, b"srd iv")[:12], "big")
        self._masked = -1  # the message whose immediate's mask this is
        self._mask = 0
        self._secret = secret
        self._suite = suite
        self._unused: dict[int, int] = {}  # by path: the sequences from this one on
        self._sealing: _aead.Keys | None = None
        self._opening: _aead.Keys | None = None

    def next(self) -> DirectionKeys:
        """Return the keys of the next generation."""
        return DirectionKeys(derive(self._secret, b"srd ku"), suite=self._suite)

    def nonce(self, path: int, sequence: int) -> bytes:
        """Return the nonce of a packet."""
        return (self.iv ^ (path << 64 | sequence)).to_bytes(12, "big")

    def seal(
        self,
        packets: memoryview,
        payloads: list[memoryview],
        *,
        count: int,
        segment_bytes: int,
        path: int,
        path_sequence: int,
        phase: int,
    ) -> int:
        """Encrypt the `count` packets of a burst, which lie back to back in `packets`; return the size of all.

        `packets` has their headers as in plain text, which get the key phase, and the immediate encrypted. `payloads`:
        each is cut into packets of `segment_bytes`; only the last packet may have less. ValueError: a sequence was used
        before, or there is no room in `packets`.
        """
        if path_sequence < self._unused.get(path, 0):
            raise ValueError(f"path sequence {path_sequence} was used before")
        self._unused[path] = path_sequence + count
        if _is_native(segment_bytes):
            if self._sealing is None:
                self._sealing = self.native(seals=True)
            return self._sealing.seal(packets, payloads, segment_bytes, path, path_sequence, phase)
        return self.seal_one_by_one(
            packets, payloads, segment_bytes=segment_bytes, path=path, path_sequence=path_sequence, phase=phase
        )

    def open_untrusted(
        self,
        packets: memoryview,
        *,
        start: int,
        stride: int,
        size_bytes: int,
        count: int,
        last_bytes: int,
        number: int,
        out: memoryview,
        headers: memoryview,
    ) -> int:
        """Decrypt the payloads of a train to `out`, back to back; return how many packets are authentic, and of it.

        A packet of `size_bytes` lies every `stride` bytes from `start`; the last of them has `last_bytes`. They are of
        the train as `continued_untrusted` has it, and numbered from `number` on: the first that is not, or whose tag is
        wrong, ends it. `headers` gets the headers of those that are, as in plain text.
        """
        if _is_native(size_bytes - HEADER_BYTES - TAG_BYTES):
            if self._opening is None:
                self._opening = self.native(seals=False)
            return self._opening.open_untrusted(
                packets, start, stride, size_bytes, count, last_bytes, number, out, headers
            )
        return self.open_one_by_one_untrusted(
            packets,
            start=start,
            stride=stride,
            size_bytes=size_bytes,
            count=count,
            last_bytes=last_bytes,
            number=number,
            out=out,
            headers=headers,
        )

    def native(self, *, seals: bool) -> _aead.Keys:
        """Return these keys in C, either to seal or to open."""
        return _aead.Keys(
            suite=self._suite,
            key=derive(self._secret, b"srd key"),
            iv=self.iv.to_bytes(12, "big"),
            immediates_key=derive(self._secret, b"srd im"),
            seals=seals,
        )

    # -- the same without C ---------------------------------------------------------------------------------------

    def seal_one_by_one(
        self,
        packets: memoryview,
        payloads: list[memoryview],
        *,
        segment_bytes: int,
        path: int,
        path_sequence: int,
        phase: int,
    ) -> int:
        """Do what `seal` does with `cryptography`."""
        encrypt, number, at = self.aead.encrypt_into, self.iv ^ path << 64, 0
        for memory in payloads:
            for start in range(0, len(memory) or 1, segment_bytes or 1):
                payload = memory[start : start + segment_bytes]
                payload_at = at + HEADER_BYTES
                header, at = packets[at:payload_at], payload_at + len(payload) + TAG_BYTES
                if phase or header[_FLAGS_AT]:
                    header[_FLAGS_AT] |= phase
                    self.mask_immediate(header)
                encrypt((number ^ path_sequence).to_bytes(12, "big"), payload, header, packets[payload_at:at])
                path_sequence += 1
        return at

    def open_one_by_one_untrusted(
        self,
        packets: memoryview,
        *,
        start: int,
        stride: int,
        size_bytes: int,
        count: int,
        last_bytes: int,
        number: int,
        out: memoryview,
        headers: memoryview,
    ) -> int:
        """Do what `open_untrusted` does with `cryptography`."""
        # Before anything is decrypted: what has been counts as received, whoever's it says to be.
        whole = continued_untrusted(packets[start:], stride=stride, count=count)
        base, decrypt, written = self.iv ^ packets[start + 3] << 64, self.aead.decrypt_into, 0
        for index in range(whole):
            at, size = start + index * stride, last_bytes if index == count - 1 else size_bytes
            header, sealed = packets[at : at + HEADER_BYTES], packets[at + HEADER_BYTES : at + size]
            end = written + size - HEADER_BYTES - TAG_BYTES
            try:
                decrypt((base ^ number + index).to_bytes(12, "big"), sealed, header, out[written:end])
            except InvalidTag:
                return index
            plain_at = index * HEADER_BYTES
            headers[plain_at : plain_at + HEADER_BYTES] = header
            if header[_FLAGS_AT]:
                self.restore(headers[plain_at : plain_at + HEADER_BYTES])
            written = end
        return whole

    def restore(self, header: memoryview) -> None:
        """Make the header of an encrypted data packet that of the packet in plain text."""
        header[_FLAGS_AT] &= ~KEY_PHASE & 0xFF
        self.mask_immediate(header)

    def mask_immediate(self, header: memoryview) -> None:
        """Encrypt the immediate of a header, if it is to be hidden, or decrypt it, which is the same operation."""
        if header[_FLAGS_AT] & (IMMEDIATE | ABORTED) != IMMEDIATE:
            return
        message = int.from_bytes(header[_MESSAGE_AT : _MESSAGE_AT + 4], "big")
        if self._masked != message:
            ecb = BlockCipher(algorithms.AES(derive(self._secret, b"srd im")), modes.ECB()).encryptor()  # noqa: S305 - a mask
            self._masked, self._mask = message, int.from_bytes(ecb.update(message.to_bytes(16, "big"))[:4], "big")
        field = header[_IMMEDIATE_AT : _IMMEDIATE_AT + 4]
        field[:] = (int.from_bytes(field, "big") ^ self._mask).to_bytes(4, "big")


def _is_native(payload_bytes: int) -> bool:
    return HAS_NATIVE and (payload_bytes <= LARGE_BYTES or not large_by_cryptography())


@cache
def large_by_cryptography() -> bool:
    """Whether `cryptography` encrypts large packets faster than C does, tried for a tenth of a millisecond."""
    keys, payload = DirectionKeys(bytes(32), suite=Suite.AES_256_GCM), [memoryview(bytes(2 * LARGE_BYTES))]
    packet = memoryview(bytearray(HEADER_BYTES + 2 * LARGE_BYTES + TAG_BYTES))
    native = keys.native(seals=True)

    def in_c(number: int) -> None:
        native.seal(packet, payload, 2 * LARGE_BYTES, 0, number, 0)

    def by_cryptography(number: int) -> None:
        keys.seal_one_by_one(packet, payload, segment_bytes=2 * LARGE_BYTES, path=0, path_sequence=number, phase=0)

    return _fastest_s(by_cryptography) < _fastest_s(in_c)


def _fastest_s(seal: Callable[[int], None]) -> float:
    times = []
    for number in range(_TRIALS):
        began = time.perf_counter()
        seal(number)
        times.append(time.perf_counter() - began)
    return min(times)
