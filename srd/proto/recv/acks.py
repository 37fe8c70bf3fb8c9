"""What an ack says, when it is due, and which way it goes.

Theory of operation. Acks are not acknowledged, so their sender does not see which of them arrive.

1. Every ack reports everything received (cumulative point and bitmap), and all credit. Beside that it reports the paths
   that packets came over since the last ack.
2. Rotation. Each ack leaves on another local path than the one before, and each local path is combined with each
   address in turn, so that some acks arrive, whatever links are dead. If acks were sent from one port, the return path
   of an address would be determined by its forward path; and where most links are dead, all ports that reach this end
   may have a dead return path.
3. Preference. A probe carries an ack path that acks arrive over (see `paths.way_back`). Its sender waits for an answer,
   or has found that ways back differ much, so for a while most acks take that path, and some rotate, in case it dies
   too. Each path is then reported more than once, since a path that is not reported looks dead to its sender.
4. Credit is counted in message bytes, and in messages, from the opening of the peer and only ever grows: the window
   plus what the application has released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from srd.proto.base.seqset import SequenceSet, mask
from srd.proto.config import MAX_PATH_NUMBERS, ProtocolConfig
from srd.proto.paths.validation import AddressValidation
from srd.proto.wire.control import (
    NO_ACK_PATH,
    NO_PATH,
    Ack,
    PathReport,
    Probe,
    ack_bytes,
    bitmap_room_bytes,
    max_reports,
)
from srd.proto.wire.data import HEADER_BYTES, MAX_ACK_WITH_DATA_BYTES, NOT_READY, Address, ReceivedBurst, expand

AckPath = tuple[int, int]
"""Path of the ack's sender, path of its receiver."""

PREFERENCE_S: Final = 0.5
"""How long a reported ack path is preferred. A sender in trouble sends another probe before."""
ACKS_ON_PREFERRED: Final = 3
"""Acks on the preferred path between two that rotate."""
ACK_EVERY_PACKETS: Final = 4
"""Packets after which an ack is due at once. An ack costs both ends and the fabric more than a data packet does: it is
small, but not part of a segment train."""
REPORT_REPEATS: Final = 1
"""Acks that carry the report of a path after a packet arrived on it. A path in use is reported again soon; a second
report would double the cost of an ack at both ends."""
PREFERRED_REPORT_REPEATS: Final = 2
"""The same while an ack path is preferred: the peer may lose acks."""
PROBE_ANSWERS: Final = 4
"""Acks that answer a probe. They take different ack paths, since one of them may be dead: with three of four links dead
one answer is lost three times in four, and all four are lost one time in three."""
MAX_ANSWERS: Final = 16
"""Largest number of acks due at one time to answer probes."""


class AckPathSelector:
    """`prefer` an ack path that a probe reports; `select` the ack path of the next ack."""

    __slots__ = ("_paths", "_preferred", "_preferred_until", "_since_turn", "_turns")

    def __init__(self, *, paths: int) -> None:
        self._paths = paths
        self._turns = 0
        self._preferred: AckPath | None = None
        self._preferred_until = 0.0
        self._since_turn = 0  # acks on the preferred path since the last that rotated

    def prefer(self, ack_path: AckPath, *, now: float) -> None:
        """Note that an ack has arrived over this ack path."""
        if ack_path[0] < self._paths:
            self._preferred, self._preferred_until = ack_path, now + PREFERENCE_S

    @property
    def preferred(self) -> bool:
        """Whether an ack path is preferred now."""
        return self._preferred is not None

    def select(self, remote_path: Sequence[int], *, now: float) -> AckPath:
        """Return the ack path of the next ack; in rotation to one of `remote_path`, at least one path of the peer."""
        if self._preferred is not None:
            if now >= self._preferred_until:
                self._preferred = None
            elif self._since_turn < ACKS_ON_PREFERRED:
                self._since_turn += 1
                return self._preferred
        self._since_turn = 0
        self._turns += 1
        round_, path = divmod(self._turns, self._paths)
        return path, remote_path[(path + round_) % len(remote_path)]


@dataclass(slots=True)
class RxPath:
    """What was received on one of the peer's paths."""

    sequence: int
    sent_us: int = 0
    received_at: float = 0.0
    packets: int = 0
    duplicates: int = 0
    ecn_ce: int = 0
    reports_due: int = 0

    def report(self, path: int, *, now: float) -> PathReport:
        """Return the report of this path, as of now."""
        return PathReport(
            path,
            self.sequence & 0xFFFFFFFF,
            self.sent_us,
            min(max(int((now - self.received_at) * 1e6), 0), 0xFFFFFFFF),
            self.packets & 0xFFFFFFFF,
            self.duplicates & 0xFFFF,
            self.ecn_ce & 0xFFFF,
            int(self.received_at * 1e6) & 0xFFFFFFFF,
        )


class Acks:
    """`on_burst` and `on_probe` for what arrives; `poll` the ack when `due_at` has passed, `poll_with_data` before."""

    __slots__ = (
        "_ack_paths", "_answers", "_config", "_granted_bytes", "_granted_messages", "_is_not_ready", "_released_bytes",
        "_released_messages", "_rx_paths", "_unacked_packets", "addresses", "due_at", "overhead_bytes", "window",
    )  # fmt: skip

    def __init__(self, config: ProtocolConfig, *, addresses: AddressValidation, overhead_bytes: int) -> None:
        """Take the addresses of the peer, and what protection adds to a control packet."""
        self.window = SequenceSet()  # PSNs that were received
        self.addresses = addresses
        self.due_at: float | None = None  # when the next ack is due; None: there is nothing to acknowledge
        self.overhead_bytes = overhead_bytes
        self._config = config
        self._ack_paths = AckPathSelector(paths=config.paths)
        self._rx_paths: dict[int, RxPath] = {}
        self._unacked_packets = 0
        self._answers = 0  # acks that are due at once to answer probes
        self._is_not_ready = False  # whether data was dropped for lack of memory since the last ack
        self._released_bytes = self._released_messages = 0
        self._granted_bytes = config.receive_window_bytes  # as in the last ack
        self._granted_messages = config.receive_window_messages

    def on_nat(self, path: int, *, remote_paths: int) -> None:
        """Note that the peer is behind a NAT: all acks leave from one port; see `AddressValidation.on_nat`."""
        self.addresses.on_nat(path, remote_paths=remote_paths)
        self._ack_paths = AckPathSelector(paths=1)

    # -- credit -------------------------------------------------------------------------------------------------

    @property
    def credit_bytes(self) -> int:
        """Total message bytes that the peer may start."""
        return self._config.receive_window_bytes + self._released_bytes

    @property
    def credit_messages(self) -> int:
        """Total messages that the peer may start."""
        return self._config.receive_window_messages + self._released_messages

    def release(self, size_bytes: int, *, messages: int, now: float) -> None:
        """Return the credit of delivered messages; an ack is due once it is an eighth of a window."""
        self._released_bytes += size_bytes
        self._released_messages += messages
        config = self._config
        if (
            self.credit_bytes - self._granted_bytes >= max(config.receive_window_bytes // 8, 1)
            or self.credit_messages - self._granted_messages >= max(config.receive_window_messages // 8, 1)
        ):  # fmt: skip
            self.due_at = now

    def report_not_ready(self, *, now: float) -> None:
        """Report NOT_READY to the peer at once: data was dropped for lack of memory."""
        self._is_not_ready = True
        self.due_at = now

    # -- what arrives -------------------------------------------------------------------------------------------

    def on_burst(self, burst: ReceivedBurst, *, duplicates: int, now: float) -> None:
        """Record a received burst; the ack of one that has only duplicates is due at once, as the last may be lost."""
        rx_path = self._record(
            burst.path,
            path_sequence=burst.path_sequence + burst.count - 1,
            sent_us=burst.sent_us,
            address=burst.address,
            received_at=burst.received_at,
            size_bytes=burst.payload_bytes + burst.count * HEADER_BYTES,
        )
        rx_path.packets += burst.count
        rx_path.duplicates += duplicates
        if burst.ecn_ce:
            rx_path.ecn_ce += burst.count
        if duplicates < burst.count:
            self._unacked_packets += burst.count
        if duplicates == burst.count or self._unacked_packets >= ACK_EVERY_PACKETS:
            self.due_at = now
        elif self.due_at is None:
            self.due_at = now + self._config.ack_delay_s

    def on_probe(self, probe: Probe, *, address: Address, now: float, received_at: float) -> None:
        """Record a probe, which carries the ack path of an ack. Its answers take several ack paths."""
        if probe.path >= MAX_PATH_NUMBERS:
            return
        if probe.ack_remote_path in self._rx_paths or probe.ack_remote_path == NO_PATH:  # to the handshake's address
            self._ack_paths.prefer((probe.ack_path, probe.ack_remote_path), now=now)
        rx_path = self._record(
            probe.path,
            path_sequence=probe.path_sequence,
            sent_us=probe.sent_us,
            address=address,
            received_at=received_at,
            size_bytes=probe.size_bytes,
        )
        rx_path.packets += 1
        rx_path.reports_due = PROBE_ANSWERS
        self._answers = min(self._answers + PROBE_ANSWERS, MAX_ANSWERS)
        self.due_at = now

    def _record(
        self, path: int, *, path_sequence: int, sent_us: int, address: Address, received_at: float, size_bytes: int
    ) -> RxPath:
        """Record packets of `size_bytes` in all that arrived over a path."""
        rx_path = self._rx_paths.get(path)
        if rx_path is None:
            rx_path = self._rx_paths[path] = RxPath(path_sequence - 1)
        sequence = expand(path_sequence & 0xFFFFFFFF, near=max(rx_path.sequence, 0))
        is_newest = sequence > rx_path.sequence
        if is_newest:
            rx_path.sequence, rx_path.sent_us, rx_path.received_at = sequence, sent_us, received_at
        self.addresses.on_packets(path, address, is_newest=is_newest, size_bytes=size_bytes)
        rx_path.reports_due = PREFERRED_REPORT_REPEATS if self._ack_paths.preferred else REPORT_REPEATS
        return rx_path

    # -- acks ---------------------------------------------------------------------------------------------------

    def poll(self, *, context: int, now: float, room_bytes: int) -> tuple[Ack, Address, int] | None:
        """Return the ack that is due, its destination address and the path to send it from; None if no path is known.

        It has at most `room_bytes`. Reports without room go into the next ack; the far end of the bitmap is left out,
        and the cumulative point covers it later.
        """
        self.due_at = None
        if not self._rx_paths:
            return None
        due = self._reports_due
        if len(due) > (most := max_reports(room_bytes)):
            due = sorted(due, key=lambda item: -item[1].reports_due)[:most]
            self.due_at = now + self._config.ack_delay_s
        targets = [path for path, _ in due]
        if self._answers:
            self._answers -= 1
            if self._answers < PROBE_ANSWERS - 1:
                targets = []
            self.due_at = now if self._answers else self.due_at
        bitmap, room_bits = self.window.bits, 8 * bitmap_room_bytes(room_bytes, reports=len(due))
        if bitmap.bit_length() > room_bits:
            bitmap &= mask(room_bits)
        size_bytes = ack_bytes(bitmap, reports=len(due)) + self.overhead_bytes
        targets = self.addresses.admitted(targets or list(self._rx_paths), size_bytes=size_bytes)
        path, target = self._ack_paths.select(targets or [NO_PATH], now=now)
        address = self.addresses.spend(target, size_bytes=size_bytes)
        if address is None:
            target, address = NO_PATH, self.addresses.handshake_address
        return self._make(context, bitmap, due, (path, target), now=now), address, path

    def poll_with_data(self, *, context: int, now: float, room_bytes: int) -> Ack | None:
        """Return the ack that is due, or will be, if data that goes to the peer now has room for it.

        None while acks answer a probe, which take paths of their own.
        """
        if self.due_at is None or self._answers or not self._rx_paths:
            return None
        due = self._reports_due
        if ack_bytes(self.window.bits, reports=len(due)) > min(room_bytes, MAX_ACK_WITH_DATA_BYTES):
            return None
        self.due_at = None
        return self._make(context, self.window.bits, due, NO_ACK_PATH, now=now)

    @property
    def _reports_due(self) -> list[tuple[int, RxPath]]:
        return [(path, rx_path) for path, rx_path in self._rx_paths.items() if rx_path.reports_due]

    def _make(self, context: int, bitmap: int, due: list[tuple[int, RxPath]], ack_path: AckPath, *, now: float) -> Ack:
        self._unacked_packets = 0
        reports = tuple([rx_path.report(path, now=now) for path, rx_path in due])
        for _, rx_path in due:
            rx_path.reports_due -= 1
        self._granted_bytes, self._granted_messages = self.credit_bytes, self.credit_messages
        flags, self._is_not_ready = NOT_READY * self._is_not_ready, False
        credit = (self._granted_bytes, self._granted_messages)
        return Ack(context, self.window.base, bitmap, *credit, reports, flags, *ack_path)
