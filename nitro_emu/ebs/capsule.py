"""What a writer and a server of volumes send each other: a command is a SEND, data goes by RDMA, a reply is a SEND.

As in NVMe over Fabrics, a capsule has no data. A command names registered memory of the writer: the server reads from
it what is to be written, and writes to it what was read. The immediate of its last write is the command's number, and
says that it has succeeded: SRD delivers in no order, so a SEND could arrive before the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, MAX_EPOCH, Kind, epoch_of

MAX_IO_BYTES: Final = 1 << 20
"""Data of one command."""

MAX_ZERO_BYTES: Final = 256 << 20
"""Blocks that one command may write without data: their entries are 1 MiB."""


class Opcode(IntEnum):
    """What a command is."""

    STATUS = 1
    """Who has it: answered by anybody's."""
    CREATE = 2
    """Make a replica; of the kind ABSENT: one of a volume that others have, which is to be filled."""
    PROMISE = 3
    """Take no command of an earlier epoch any more, and no PROMISE of a smaller `length`: the number of the roster."""
    DIGESTS = 4
    """Of extents, 8 bytes each; `offset` is the first one's number, `length` how many."""
    ENTRIES = 5
    """Of blocks, 16 bytes each."""
    ADOPT = 6
    """Take versions as they were decided, whatever is there; as DATA, what is held of that version."""
    MARK = 7
    """All was adopted: this replica is one of the epoch's."""
    READ = 8
    WRITE = 9
    ZERO = 10
    RENEW = 11
    """The lease, and nothing else."""
    RELEASE = 12
    """End the lease."""
    SCRUB = 13
    """Check blocks; the reply's value is how many were corrupt."""
    HELD = 14
    """As ENTRIES, of the data that there is, whatever was decided since: what a block was before it was absent."""


NO_DATA: Final = frozenset({Opcode.STATUS, Opcode.CREATE, Opcode.PROMISE, Opcode.MARK, Opcode.RENEW, Opcode.RELEASE})
"""Commands whose offset and length say nothing."""


_MOST_BYTES: Final = {
    Opcode.ADOPT: MAX_ZERO_BYTES,
    Opcode.ZERO: MAX_ZERO_BYTES,
    Opcode.ENTRIES: EXTENT_BLOCKS * BLOCK_BYTES,
    Opcode.HELD: EXTENT_BLOCKS * BLOCK_BYTES,
}
"""Of the volume that a command may be about; others have MAX_IO_BYTES."""

_KINDS: Final = {
    Opcode.WRITE: {Kind.DATA},
    Opcode.ZERO: {Kind.HOLE, Kind.ZERO},
}


class Outcome(IntEnum):
    """How a command has ended."""

    OK = 0
    FENCED = 1
    """It is of an epoch that is over, or has not begun here."""
    BUSY = 2
    """Another writer has a lease; `value` is for how many microseconds."""
    ABSENT = 3
    """The replica does not have block `value`."""
    CHANGED = 4
    """A block is of another version than the one that was asked for; of PROMISE: the volume has other servers now."""
    FAILED = 5
    """`value` is an errno."""
    UNKNOWN = 6
    """There is no such volume here."""
    REFUSED = 7
    """It is no command of a conforming writer."""


BLANK: Final = (1 << 64) - 1
"""A mark: the replica has lost all that it had, and so has no say in what was written."""


class CapsuleError(VolumeError):
    """A capsule that no conforming end sends."""


_COMMAND: Final = struct.Struct("!BBHIQQQQQQQQ")
_REPLY: Final = struct.Struct("!BxHIQQQQ")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. What it does not need is 0."""

    opcode: Opcode
    number: int = 0
    """Of this connection; 32 bits."""
    volume: int
    epoch: int = 0
    owner: int = 0
    """The writer's, drawn at random when it attaches."""
    version: int = 0
    kind: Kind = Kind.HOLE
    """What the blocks become, of ADOPT and ZERO."""
    offset: int = 0
    length: int = 0
    """Bytes of the volume; of CREATE its size."""
    key: int = 0
    """Of the writer's registered memory."""
    memory_offset: int = 0
    """Of that memory."""

    def encode(self) -> bytes:
        """Return the capsule."""
        return _COMMAND.pack(
            self.opcode, self.kind, _FORMAT, self.number, self.volume, self.epoch, self.owner, self.version,
            self.offset, self.length, self.key, self.memory_offset,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply: the outcome, and what the replica knows of its volume."""

    outcome: Outcome
    number: int = 0
    epoch: int = 0
    owner: int = 0
    mark: int = 0
    """The epoch of which it is a replica, or BLANK."""
    value: int = 0

    def encode(self) -> bytes:
        """Return the capsule."""
        return _REPLY.pack(self.outcome, _FORMAT, self.number, self.epoch, self.owner, self.mark, self.value)


def command_untrusted(data: bytes) -> Command:
    """Return a command. Raises CapsuleError."""
    if len(data) != _COMMAND.size:
        raise CapsuleError(f"a command of {len(data)} bytes; it has {_COMMAND.size}")
    opcode, kind, version_of_format, *rest = _COMMAND.unpack(data)
    if version_of_format != _FORMAT:
        raise CapsuleError(f"a command of format {version_of_format}; this end has {_FORMAT}")
    number, volume, epoch, owner, version, offset, length, key, memory_offset = rest
    try:
        command = Command(
            opcode=Opcode(opcode), kind=Kind(kind), number=number, volume=volume, epoch=epoch, owner=owner,
            version=version, offset=offset, length=length, key=key, memory_offset=memory_offset,
        )  # fmt: skip
    except ValueError:
        raise CapsuleError(f"opcode {opcode} with kind {kind}; there is no such command") from None
    _check(command)
    return command


def _check(command: Command) -> None:
    """Check what does not depend on the volume. Raises CapsuleError."""
    if command.epoch > MAX_EPOCH:
        raise CapsuleError(f"epoch {command.epoch}; {MAX_EPOCH} is the last one")
    if command.opcode is Opcode.CREATE or command.opcode in NO_DATA:
        return
    if command.kind not in _KINDS.get(command.opcode, set(Kind)) or epoch_of(command.version) > command.epoch:
        raise CapsuleError(f"{command.opcode.name} of {command.kind.name}, version {command.version:#x}")
    most = _MOST_BYTES.get(command.opcode, MAX_IO_BYTES)
    if command.opcode is Opcode.DIGESTS:
        is_right = 0 < command.length <= MAX_IO_BYTES // 8
    else:
        is_right = 0 < command.length <= most and not (command.length % BLOCK_BYTES or command.offset % BLOCK_BYTES)
    if not is_right:
        raise CapsuleError(f"{command.opcode.name} of {command.length} at {command.offset}")


def reply_untrusted(data: bytes) -> Reply:
    """Return a reply. Raises CapsuleError."""
    if len(data) != _REPLY.size:
        raise CapsuleError(f"a reply of {len(data)} bytes; it has {_REPLY.size}")
    outcome, version_of_format, number, epoch, owner, mark, value = _REPLY.unpack(data)
    if version_of_format != _FORMAT or outcome > max(Outcome):
        raise CapsuleError(f"a reply of format {version_of_format} with outcome {outcome}")
    return Reply(outcome=Outcome(outcome), number=number, epoch=epoch, owner=owner, mark=mark, value=value)
