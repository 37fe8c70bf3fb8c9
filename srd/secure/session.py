"""Packet protection: the keys of one peer, and what they do to data and control packets.

Rules.
1. Each direction has a secret of its own, from the handshake. Key, IV, the immediates' key and the next secret are
   derived from it with the labels "srd key", "srd iv", "srd im" and "srd ku" (HKDF-Expand, as in RFC 9001, section
   5.1).
2. `srd.secure.packets` has nonces, and what is encrypted. No path sequence is used twice, so neither is a nonce.
   Control packets have a counter of their own.
3. Packets carry the lower 32 bits of the sequence. The receiver takes the number nearest to the highest that was
   authentic on that path, and drops what it has seen (`ReplayWindow`).
4. Headers are authenticated and readable, as a protected one would cost more than 5 % (docs/security.md), but for the
   immediate.
5. Key update is that of RFC 9001, section 6: both directions change together. Either end may start, after
   `UPDATE_PACKETS` or `UPDATE_S`, once it has received a packet with the present keys. The receiver computes the next
   keys beforehand. It keeps the old ones for three round trips (`MIN_OLD_KEYS_S`), for packets that were overtaken.
6. Nothing changes for a packet that is not authentic, but the counter `forged`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag

from srd.proto.base.errors import PacketError
from srd.proto.base.seqset import mask
from srd.proto.config import MAX_PATH_NUMBERS
from srd.proto.wire.data import PREFIX_BYTES, VERSION, PacketType, expand
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES
from srd.secure.packets import CONTROL, DirectionKeys, Suite

UPDATE_PACKETS: Final = 1 << 30
"""Packets after which the keys change: 2^37 blocks of AES at MTU 1500, 2^42 with the longest datagrams. An attacker's
advantage is 2^-54 at most, 2^-44 with these, by the bound of RFC 9001, appendix B.1."""
UPDATE_FORGERIES: Final = 1 << 35
"""Packets that were not authentic, after which the keys change, too (RFC 9001, section 6.6, which allows 2^36 with
ChaCha20-Poly1305)."""
UPDATE_S: Final = 600.0
"""Time after which the keys change, also those of a quiet peer."""
OLD_KEYS_RTTS: Final = 3
"""Round trips for which the receiver keeps old keys: a packet that was overtaken by more is late, and sent again."""
MIN_OLD_KEYS_S: Final = 0.5
"""Least time for which it does: packets wait in the sockets of busy hosts, and an end that sends no data knows no round
trip."""
REPLAY_WINDOW: Final = 8192
"""Path sequences, from the highest received one down, of which a receiver knows whether it received them. What is older
is dropped. As many as WireGuard's; a path is FIFO, so less would do where no link reorders."""
SecretLog = Callable[[int, int, bytes], None]
"""Takes a context, and the suite and the first secret of the packets that carry it."""
_PREFIX: Final = struct.Struct(">BBBBIQ")
_NUMBER: Final = struct.Struct(">BBI")  # flags, path and path sequence
_NUMBER_AT: Final = 2


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


_WINDOW_MASK: Final = mask(REPLAY_WINDOW)


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
        return prefix + keys.aead.encrypt(keys.nonce(CONTROL, counter), packet, prefix)

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
            try:
                packet = keys.aead.decrypt(keys.nonce(CONTROL, counter), data[PREFIX_BYTES:], prefix)
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
        payloads: list[memoryview],
        *,
        count: int,
        segment_bytes: int,
        path: int,
        path_sequence: int,
        now: float,
    ) -> int:
        """Encrypt a burst of `count` packets, as `DirectionKeys.seal` does; return the size of all.

        `path_sequence`: the first packet's, in full.
        """
        keys = self._keys_to_send(count, now=now)
        return keys.seal(
            packets,
            payloads,
            count=count,
            segment_bytes=segment_bytes,
            path=path,
            path_sequence=path_sequence,
            phase=self._phase,
        )

    def open_train_untrusted(
        self,
        packets: memoryview,
        *,
        start: int,
        stride: int,
        size_bytes: int,
        count: int,
        last_bytes: int,
        out: memoryview,
        headers: memoryview,
    ) -> int:
        """Decrypt the payloads of a train, as `DirectionKeys.open_untrusted` does, as far as they are as expected.

        That is what nearly all are: authentic, with the present keys, of the first one's context and path, numbered one
        by one, and later than all before. Returns how many these are. `open_data_untrusted` is for what follows.
        """
        flags, path, low = _NUMBER.unpack_from(packets, start + _NUMBER_AT)
        window = self._windows.get(path)
        if window is None or flags & KEY_PHASE != self._phase or not self._is_confirmed:
            return 0
        first = expand(low, near=window.next)
        if first < window.next:
            return 0
        kept = self._receive.open_untrusted(
            packets,
            start=start,
            stride=stride,
            size_bytes=size_bytes,
            count=count,
            last_bytes=last_bytes,
            number=first,
            out=out,
            headers=headers,
        )
        if kept:
            window.add_run(first, kept)
        return kept

    def open_data_untrusted(self, packet: memoryview, *, out: memoryview, header: memoryview, now: float) -> bool:
        """Decrypt one packet's payload to `out`, which must be as long; return whether it is authentic and new.

        `header` gets its header as in plain text. For False the content of both is undefined.
        """
        flags, path, low = _NUMBER.unpack_from(packet, _NUMBER_AT)
        known = self._windows.get(path)
        if known is None and path >= MAX_PATH_NUMBERS:
            self.forged += 1
            return False
        window = known or ReplayWindow()
        number = expand(low, near=window.next)
        if not window.is_new(number):
            self.replayed += 1
            return False
        size = len(packet)
        for keys in self._candidates(flags & KEY_PHASE, now=now):
            if not keys.open_untrusted(
                packet,
                start=0,
                stride=size,
                size_bytes=size,
                count=1,
                last_bytes=size,
                number=number,
                out=out,
                headers=header,
            ):
                continue
            window.add(number)
            if known is None:
                self._windows[path] = window
            if keys is not self._receive or not self._is_confirmed:
                self._on_authentic(keys, now=now)
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
