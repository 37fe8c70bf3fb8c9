"""Packet protection: the keys of one peer, and what they do to data and control packets.

Rules.
1. Each direction has a secret of its own, from the handshake. Key, IV, the immediates' key and the next secret are
   derived from it with the labels "srd key", "srd iv", "srd im" and "srd ku" (HKDF-Expand, as in RFC 9001, section
   5.1).
2. The nonce is the IV, added bit by bit to the path (a byte; `CONTROL` for control packets) and the full path sequence
   (64 bits). No path sequence is used twice, so neither is a nonce. Control packets have a counter of their own.
3. Packets carry the lower 32 bits of the sequence. The receiver takes the number nearest to the highest that was
   authentic on that path, and drops what it has seen (`ReplayWindow`).
4. Headers are authenticated and readable, as a protected one would cost more than 5 % (docs/security.md), but for the
   one field that the application chooses: the immediate is added bit by bit to the first four bytes of AES(immediates'
   key, message number). So it is encrypted alike in every packet of its message. In an ABORTED packet that field has
   the reason instead, and is readable: two values must not be encrypted alike.
5. Key update is that of RFC 9001, section 6: both directions change together. Either end may start, after
   `UPDATE_PACKETS` or `UPDATE_S`, once it has received a packet with the present keys. The receiver computes the next
   keys beforehand. It keeps the old ones for three round trips (`MIN_OLD_KEYS_S`), for packets that were overtaken.
6. Nothing changes for a packet that is not authentic, but the counter `forged`.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from srd.proto.config import MAX_PATH_NUMBERS
from srd.proto.errors import PacketError
from srd.proto.seqset import mask
from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE, PREFIX_BYTES, VERSION, PacketType, expand
from srd.proto.wire.protected import FEW_HEADERS, KEY_PHASE, TAG_BYTES, continued_untrusted

UPDATE_PACKETS = 1 << 30
"""Packets after which the keys change: 2^37 blocks of AES at MTU 1500, 2^42 with the longest datagrams. An attacker's
advantage is 2^-54 at most, 2^-44 with these, by the bound of RFC 9001, appendix B.1."""
UPDATE_FORGERIES = 1 << 35
"""Packets that were not authentic, after which the keys change, too (RFC 9001, section 6.6, which allows 2^36 with
ChaCha20-Poly1305)."""
UPDATE_S = 600.0
"""Time after which the keys change, also those of a quiet peer."""
OLD_KEYS_RTTS = 3
"""Round trips for which the receiver keeps old keys: a packet that was overtaken by more is late, and sent again."""
MIN_OLD_KEYS_S = 0.5
"""Least time for which it does: packets wait in the sockets of busy hosts, and an end that sends no data knows no round
trip."""
REPLAY_WINDOW = 8192
"""Path sequences, from the highest received one down, of which a receiver knows whether it received them. What is older
is dropped. As many as WireGuard's; a path is FIFO, so less would do where no link reorders."""
CONTROL = 255
"""Stands for the path in the nonce of a control packet; data has path numbers below 128."""
SecretLog = Callable[[int, int, bytes], None]
"""Takes a context, and the suite and the first secret of the packets that carry it."""
_PREFIX = struct.Struct(">BBBBIQ")
_NUMBER = struct.Struct(">BBI")  # flags, path and path sequence
_NUMBER_AT = 2
_U32 = struct.Struct(">I")
_MESSAGE = struct.Struct(">III")  # message, length, immediate
_MESSAGE_AT, _IMMEDIATE_AT = 28, 36


class Suite(IntEnum):
    """What encrypts packets. Agreed on in the handshake."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2
    """For processors without instructions for AES. Immediates are encrypted by AES nevertheless: they are short."""


def derive(secret: bytes, label: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand (RFC 5869) of a secret."""
    return hmac.digest(secret, label + b"\x01", "sha256")


class DirectionKeys:
    """The keys of one direction and one generation."""

    def __init__(self, secret: bytes, *, suite: Suite) -> None:
        key = derive(secret, b"srd key")
        self.aead = AESGCM(key) if suite is Suite.AES_256_GCM else ChaCha20Poly1305(key)
        self.iv = int.from_bytes(derive(secret, b"srd iv")[:12], "big")
        self._ecb = BlockCipher(algorithms.AES(derive(secret, b"srd im")), modes.ECB()).encryptor()  # noqa: S305 - a mask
        self._mask = (-1, 0)  # the last message, and its immediate's mask
        self._secret = secret
        self._suite = suite

    def immediate_mask(self, message: int) -> int:
        """Return what a message's immediate is added to, bit by bit, for encryption and decryption."""
        if self._mask[0] != message:
            self._mask = (message, int.from_bytes(self._ecb.update(message.to_bytes(16, "big"))[:4], "big"))
        return self._mask[1]

    def next(self) -> DirectionKeys:
        """Return the keys of the next generation."""
        return DirectionKeys(derive(self._secret, b"srd ku"), suite=self._suite)


class ReplayWindow:
    """The numbers received on one path, or of control packets: the highest, and which of `REPLAY_WINDOW` below it."""

    __slots__ = ("_bits", "_run", "next")

    def __init__(self) -> None:
        self.next = 0  # one more than the highest number received
        self._run = 0  # so many numbers below `next` were received in order, and are not in `_bits` yet
        self._bits = 0  # bit i: the number `next` - `_run` - 1 - i was received

    def is_new(self, number: int) -> bool:
        """Whether a number was not received, and is not too old to tell."""
        if number >= self.next:
            return True
        behind = self.next - 1 - number
        age = behind - self._run  # in `_bits`, which the run, however long, has not moved yet
        return behind < REPLAY_WINDOW and age >= 0 and not self._bits >> age & 1

    def add_run(self, first: int, count: int) -> None:
        """Note `count` numbers from `first` on as received, which is above all others."""
        self.add(first)
        self._run += count - 1
        self.next += count - 1

    def add(self, number: int) -> None:
        """Note a number as received, which `is_new`."""
        if number == self.next:  # in order
            self._run += 1
            self.next += 1
            return
        run = min(self._run, REPLAY_WINDOW)
        bits = self._bits << run | mask(run)
        self._run = 0
        if number > self.next:
            bits = bits << (number + 1 - self.next) | 1 if number - self.next < REPLAY_WINDOW else 1
            self.next = number + 1
        else:
            bits |= 1 << (self.next - 1 - number)
        self._bits = bits & _WINDOW_MASK


_WINDOW_MASK = mask(REPLAY_WINDOW)


PacketViews = tuple[memoryview, memoryview]
"""Views of an encrypted data packet: its header; its payload and tag."""


def packet_views(packets: memoryview, *, size_bytes: int, count: int) -> list[PacketViews]:
    """Return views of `count` packets of `size_bytes` that lie back to back; the last one may be shorter."""
    views = []
    for at in range(0, count * size_bytes, size_bytes):
        payload_at = at + HEADER_BYTES
        views.append((packets[at:payload_at], packets[payload_at : at + size_bytes]))
    return views


class Session:
    """The keys of one peer, at one end. Times are seconds of the core's clock."""

    def __init__(
        self,
        *,
        send_secret: bytes,
        receive_secret: bytes,
        suite: Suite,
        now: float,
        log_secret: SecretLog | None = None,
    ) -> None:
        """Begin with the secrets of the handshake, 32 bytes each."""
        self._log = None if log_secret is None else (log_secret, suite, send_secret, receive_secret)
        self.forged = 0  # packets that were not authentic
        self.replayed = 0  # authentic once, and received before
        self.generation = 0  # of the keys
        self.rtt_s = 0.0  # round trip to the peer; its owner sets it
        self._send = DirectionKeys(send_secret, suite=suite)
        self._receive = DirectionKeys(receive_secret, suite=suite)
        self._next_receive = self._receive.next()
        self._old_receive: DirectionKeys | None = None
        self._update_at = now + UPDATE_S
        self._forged_limit = UPDATE_FORGERIES
        self._drop_old_at = now
        self._packets = 0  # sent with the present keys
        self._is_confirmed = False  # whether a packet with the present keys was received
        self._phase = 0  # KEY_PHASE in odd generations
        self._control_counter = 0
        self._control_window = ReplayWindow()
        self._windows: dict[int, ReplayWindow] = {}

    def on_contexts(self, *, own: int, remote: int) -> None:
        """Log the secrets, if they are to be, with the contexts of the packets that they protect."""
        if self._log is not None:
            log_secret, suite, send_secret, receive_secret = self._log
            log_secret(remote, suite, send_secret)
            log_secret(own, suite, receive_secret)
            self._log = None

    # -- control packets ------------------------------------------------------------------------------------------

    def seal_control(self, packet: bytes, *, context: int, now: float) -> bytes:
        """Return a control packet protected, for the peer's `context`."""
        keys = self._keys_to_send(1, now=now)
        counter, self._control_counter = self._control_counter, self._control_counter + 1
        prefix = _PREFIX.pack(VERSION, PacketType.PROTECTED, self._phase, 0, counter & 0xFFFFFFFF, context)
        return prefix + keys.aead.encrypt((keys.iv ^ (CONTROL << 64 | counter)).to_bytes(12, "big"), packet, prefix)

    def open_control_untrusted(self, data: bytes, *, now: float) -> bytes:
        """Return the control packet in a protected one. Raises PacketError if it is not authentic, or not new."""
        if len(data) < 2 * PREFIX_BYTES + TAG_BYTES:
            raise PacketError(f"{len(data)} bytes are no protected packet")
        prefix = data[:PREFIX_BYTES]
        flags, path, low = _NUMBER.unpack_from(prefix, _NUMBER_AT)
        window = self._control_window
        counter = expand(low, near=window.next)
        if flags & ~KEY_PHASE or path:
            raise self._forgery()
        if not window.is_new(counter):
            self.replayed += 1
            raise PacketError("a control packet was received before")
        for keys in self._candidates(flags & KEY_PHASE, now=now):
            nonce = (keys.iv ^ (CONTROL << 64 | counter)).to_bytes(12, "big")
            try:
                packet = keys.aead.decrypt(nonce, data[PREFIX_BYTES:], prefix)
            except InvalidTag:
                continue
            window.add(counter)
            self._on_authentic(keys, now=now)
            return packet
        raise self._forgery()

    def _forgery(self) -> PacketError:
        self.forged += 1
        return PacketError("a packet is not authentic")

    # -- data -----------------------------------------------------------------------------------------------------

    def seal_data(
        self,
        packets: memoryview,
        views: Sequence[PacketViews],
        payloads: Sequence[memoryview],
        *,
        path: int,
        path_sequence: int,
        now: float,
    ) -> int:
        """Write the encrypted payloads of a burst behind its headers, each with its tag; return the size of all.

        `packets`: where the packets lie back to back, with headers as in plain text, which become those of encrypted
        packets; `views` of these packets; `path_sequence`: the first packet's, in full. The last payload may be shorter
        than the others, and so is its packet; the room for it may be, too.
        """
        keys = self._keys_to_send(len(payloads), now=now)
        if self._phase or packets[_NUMBER_AT] & IMMEDIATE:
            self._protect_headers(packets, views, keys=keys)
        number, encrypt = keys.iv ^ path << 64, keys.aead.encrypt_into
        last = len(payloads) - 1
        for view, payload in zip(views[:last], payloads, strict=False):
            encrypt((number ^ path_sequence).to_bytes(12, "big"), payload, view[0], view[1])
            path_sequence += 1
        header, room = views[last]
        last_bytes = len(payloads[last]) + TAG_BYTES
        encrypt((number ^ path_sequence).to_bytes(12, "big"), payloads[last], header, room[:last_bytes])
        return last * (HEADER_BYTES + len(views[0][1])) + HEADER_BYTES + last_bytes

    def _protect_headers(self, packets: memoryview, views: Sequence[PacketViews], *, keys: DirectionKeys) -> None:
        """Write the key phase to the headers of a burst, and encrypt the immediate."""
        flags, count = packets[_NUMBER_AT] | self._phase, len(views)
        if count > FEW_HEADERS:
            rows = np.ndarray((count, HEADER_BYTES), np.uint8, packets, strides=(HEADER_BYTES + len(views[0][1]), 1))
            messages = rows[:, _MESSAGE_AT : _MESSAGE_AT + 4].tobytes()
            if messages == messages[:4] * count:
                rows[:, _NUMBER_AT] = flags
                if _hides_immediate(flags):
                    _mask_immediates(rows, messages[:4], keys=keys)
                return
        for header, _ in views:
            header[_NUMBER_AT] = flags
            if _hides_immediate(flags):
                _mask_immediate(header, 0, keys=keys)

    def open_train_untrusted(
        self, packets: memoryview, views: Sequence[PacketViews], *, out: memoryview
    ) -> tuple[int, int]:
        """Decrypt the payloads of a train to `out`, back to back, as far as they are as expected.

        That is what nearly all are: authentic, with the present keys, of the first one's context and path, numbered one
        by one, and later than all before. Returns how many packets these are, and their payload. `open_data_untrusted`
        is for what follows. `packets`: where the packets lie back to back; `views` of these packets.
        """
        flags, path, low = _NUMBER.unpack_from(views[0][0], _NUMBER_AT)
        window, keys = self._windows.get(path), self._receive
        if window is None or flags & KEY_PHASE != self._phase or not self._is_confirmed:
            return 0, 0
        first = number = expand(low, near=window.next)
        if number < window.next:
            return 0, 0
        # Before anything is decrypted: what has been counts as received, whoever's it says to be.
        count = continued_untrusted(packets, size_bytes=HEADER_BYTES + len(views[0][1]), count=len(views))
        base, decrypt, written = keys.iv ^ path << 64, keys.aead.decrypt_into, 0
        try:
            for header, sealed in views[:count]:
                end = written + len(sealed) - TAG_BYTES
                decrypt((base ^ number).to_bytes(12, "big"), sealed, header, out[written:end])
                number += 1
                written = end
        except InvalidTag:
            pass
        if number > first:
            window.add_run(first, number - first)
        return number - first, written

    def restore_headers(self, headers: npt.NDArray[np.uint8]) -> None:
        """Make headers (rows of 56 bytes) that `open_train_untrusted` has accepted those of packets in plain text."""
        count = len(headers)
        if count <= FEW_HEADERS:
            bytes_of = headers.reshape(-1).data
            for at in range(0, count * HEADER_BYTES, HEADER_BYTES):
                if (flag := bytes_of[at + _NUMBER_AT]) & (KEY_PHASE | IMMEDIATE):
                    _restore_header(bytes_of, at, flag, keys=self._receive)
            return
        flags = headers[:, _NUMBER_AT].tobytes()
        uniform = flags.count(flags[0]) == count
        if uniform and not flags[0] & (KEY_PHASE | IMMEDIATE):
            return
        messages = headers[:, _MESSAGE_AT : _MESSAGE_AT + 4].tobytes()
        if uniform and messages == messages[:4] * count:
            headers[:, _NUMBER_AT] = flags[0] & ~KEY_PHASE
            if _hides_immediate(flags[0]):
                _mask_immediates(headers, messages[:4], keys=self._receive)
            return
        for row, flag in zip(headers, flags, strict=True):
            _restore_header(row.data, 0, flag, keys=self._receive)

    def open_data_untrusted(self, header: memoryview, sealed: memoryview, *, out: memoryview, now: float) -> bool:
        """Decrypt the payload of one packet to `out`, which must be as long; return whether it is authentic and new.

        `header` becomes that of the packet in plain text. For False the content of `out` is undefined.
        """
        flags, path, low = _NUMBER.unpack_from(header, _NUMBER_AT)
        known = self._windows.get(path)
        if known is None and path >= MAX_PATH_NUMBERS:
            self.forged += 1
            return False
        window = known or ReplayWindow()
        number = expand(low, near=window.next)
        if not window.is_new(number):
            self.replayed += 1
            return False
        for keys in self._candidates(flags & KEY_PHASE, now=now):
            try:
                keys.aead.decrypt_into((keys.iv ^ (path << 64 | number)).to_bytes(12, "big"), sealed, header, out)
            except InvalidTag:
                continue
            window.add(number)
            if known is None:
                self._windows[path] = window
            if keys is not self._receive or not self._is_confirmed:
                self._on_authentic(keys, now=now)
            if flags & (KEY_PHASE | IMMEDIATE):
                _restore_header(header, 0, flags, keys=keys)
            return True
        self.forged += 1
        return False

    # -- key update -----------------------------------------------------------------------------------------------

    def _keys_to_send(self, packets: int, *, now: float) -> DirectionKeys:
        self._packets += packets
        is_due = self._packets >= UPDATE_PACKETS or now >= self._update_at or self.forged >= self._forged_limit
        if is_due and self._is_confirmed:
            self.update(now=now)
            self._packets = packets
        elif now >= self._drop_old_at:
            self._old_receive = None
        return self._send

    def _candidates(self, phase: int, *, now: float) -> tuple[DirectionKeys, ...]:
        """Return the keys that a packet of this phase may have been encrypted with."""
        if phase == self._phase:
            return (self._receive,)
        if self._old_receive is not None and now < self._drop_old_at:
            return (self._old_receive, self._next_receive)
        self._old_receive = None
        return (self._next_receive,)

    def _on_authentic(self, keys: DirectionKeys, *, now: float) -> None:
        if keys is self._next_receive:
            self.update(now=now)
        if keys is self._receive:
            self._is_confirmed = True

    def update(self, *, now: float) -> None:
        """Change the keys of both directions."""
        self.generation += 1
        self._phase ^= KEY_PHASE
        self._send = self._send.next()
        self._old_receive, self._receive, self._next_receive = (
            self._receive,
            self._next_receive,
            self._next_receive.next(),
        )
        self._packets, self._is_confirmed = 0, False
        self._update_at = now + UPDATE_S
        self._forged_limit = self.forged + UPDATE_FORGERIES
        self._drop_old_at = now + max(OLD_KEYS_RTTS * self.rtt_s, MIN_OLD_KEYS_S)


def plain_header(header: bytes, *, keys: DirectionKeys) -> bytes:
    """Return the header of an encrypted data packet as plain text has it."""
    out = bytearray(header)
    _restore_header(memoryview(out), 0, header[_NUMBER_AT], keys=keys)
    return bytes(out)


def _restore_header(headers: memoryview, at: int, flags: int, *, keys: DirectionKeys) -> None:
    """Remove the key phase from the header at `at`, and decrypt the immediate."""
    headers[at + _NUMBER_AT] = flags & ~KEY_PHASE
    if _hides_immediate(flags):
        _mask_immediate(headers, at, keys=keys)


def _hides_immediate(flags: int) -> bool:
    """Whether a header with these flags has an immediate that is encrypted."""
    return flags & (IMMEDIATE | ABORTED) == IMMEDIATE


def _mask_immediate(headers: memoryview, at: int, *, keys: DirectionKeys) -> None:
    """Encrypt the immediate in the header at `at`, or decrypt it, which is the same operation."""
    message, _, immediate = _MESSAGE.unpack_from(headers, at + _MESSAGE_AT)
    _U32.pack_into(headers, at + _IMMEDIATE_AT, immediate ^ keys.immediate_mask(message))


def _mask_immediates(headers: npt.NDArray[np.uint8], message: bytes, *, keys: DirectionKeys) -> None:
    """Do the same in all of these headers, one a row, of the same message."""
    immediates = headers[:, _IMMEDIATE_AT : _IMMEDIATE_AT + 4]
    immediates ^= np.frombuffer(_U32.pack(keys.immediate_mask(int.from_bytes(message, "big"))), np.uint8)
