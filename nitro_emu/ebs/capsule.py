"""What a writer and a server of volumes send each other: a command is a SEND, and so is a reply.

A WRITE has its data behind the command, in the same message: NVMe over Fabrics calls that in-capsule data. What was
read goes by RDMA to registered memory of the writer, which the command names, and is the reply itself: SRD delivers in
no order, so that a reply of its own could arrive before the data. The immediate of each message is the command's number
on its connection. So the servers of a volume get the same bytes of a write, from the same memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, MAX_EPOCH, BlockKind, epoch_of

MAX_IO_BYTES: Final = 1 << 20
"""Data of one command."""

MAX_ZERO_BYTES: Final = 256 << 20
"""Blocks that one command may write without data: their entries are 1 MiB."""


MAX_DIGESTS: Final = 512
"""Extents of one command: a server reads 8 MiB for them, and does nothing else meanwhile."""


class CapsuleOpcode(IntEnum):
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


MAX_OWNER: Final = (1 << 63) - 1
"""What a server's list of volumes can hold (SQLite)."""

NO_DATA: Final = frozenset(
    {
        CapsuleOpcode.STATUS,
        CapsuleOpcode.CREATE,
        CapsuleOpcode.PROMISE,
        CapsuleOpcode.MARK,
        CapsuleOpcode.RENEW,
        CapsuleOpcode.RELEASE,
    }
)
"""Commands whose offset and length say nothing."""

READS: Final = frozenset({CapsuleOpcode.DIGESTS, CapsuleOpcode.ENTRIES, CapsuleOpcode.HELD, CapsuleOpcode.READ})
"""Commands whose data is written to the writer's memory."""

_MOST_BYTES: Final = {
    CapsuleOpcode.ADOPT: MAX_ZERO_BYTES,
    CapsuleOpcode.ZERO: MAX_ZERO_BYTES,
    CapsuleOpcode.ENTRIES: EXTENT_BLOCKS * BLOCK_BYTES,
    CapsuleOpcode.HELD: EXTENT_BLOCKS * BLOCK_BYTES,
}
"""Of the volume that a command may be about; others have MAX_IO_BYTES."""

_KINDS: Final = {
    CapsuleOpcode.WRITE: {BlockKind.DATA},
    CapsuleOpcode.ZERO: {BlockKind.HOLE, BlockKind.ZERO},
}


class CapsuleOutcome(IntEnum):
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


_COMMAND: Final = struct.Struct("!BBHQQQQQQQ")
_REPLY: Final = struct.Struct("!BxHQQQQ")
_FORMAT: Final = 2

COMMAND_BYTES: Final = _COMMAND.size


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleCommand:
    """A command. What it does not need is 0."""

    opcode: CapsuleOpcode
    volume: int
    epoch: int = 0
    owner: int = 0
    """The writer's, drawn at random when it attaches."""
    version: int = 0
    kind: BlockKind = BlockKind.HOLE
    """What the blocks become, of ADOPT and ZERO."""
    offset: int = 0
    length: int = 0
    """Bytes of the volume; of CREATE its size."""
    key: int = 0
    """Of the writer's registered memory, for what is read."""

    def encode(self, *, key: int = 0) -> bytes:
        """Return the capsule, with this key if one is given; the data of a WRITE follows it."""
        return _COMMAND.pack(
            self.opcode, self.kind, _FORMAT, self.volume, self.epoch, self.owner, self.version,
            self.offset, self.length, key or self.key,
        )  # fmt: skip

    @property
    def data_bytes(self) -> int:
        """How much data is behind it."""
        return self.length if self.opcode is CapsuleOpcode.WRITE else 0

    @property
    def message_bytes(self) -> int:
        """Bytes of its message, with that data."""
        return COMMAND_BYTES + self.data_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleReply:
    """A reply: the outcome, and what the replica knows of its volume."""

    outcome: CapsuleOutcome
    epoch: int = 0
    owner: int = 0
    mark: int = 0
    """The epoch of which it is a replica, or BLANK."""
    value: int = 0

    def encode(self) -> bytes:
        """Return the capsule."""
        return _REPLY.pack(self.outcome, _FORMAT, self.epoch, self.owner, self.mark, self.value)


def command_untrusted(message: bytes | memoryview) -> CapsuleCommand:
    """Return the command of a message, which has as much data behind it as it says. Raises CapsuleError."""
    if len(message) < COMMAND_BYTES:
        raise CapsuleError(f"a command of {len(message)} bytes; it has {COMMAND_BYTES}")
    opcode, kind, version_of_format, *rest = _COMMAND.unpack_from(message)
    if version_of_format != _FORMAT:
        raise CapsuleError(f"a command of format {version_of_format}; this end has {_FORMAT}")
    volume, epoch, owner, version, offset, length, key = rest
    try:
        command = CapsuleCommand(
            opcode=CapsuleOpcode(opcode), kind=BlockKind(kind), volume=volume, epoch=epoch, owner=owner,
            version=version, offset=offset, length=length, key=key,
        )  # fmt: skip
    except ValueError:
        raise CapsuleError(f"opcode {opcode} with kind {kind}; there is no such command") from None
    _check(command)
    if len(message) != command.message_bytes:
        raise CapsuleError(
            f"{command.opcode.name} of {command.length} with {len(message) - COMMAND_BYTES} bytes of data"
        )
    return command


def _check(command: CapsuleCommand) -> None:
    """Check what does not depend on the volume. Raises CapsuleError."""
    if command.epoch > MAX_EPOCH:
        raise CapsuleError(f"epoch {command.epoch}; {MAX_EPOCH} is the last one")
    if command.owner > MAX_OWNER:
        raise CapsuleError(f"owner {command.owner}; {MAX_OWNER} is the last one")
    if command.opcode is CapsuleOpcode.CREATE or command.opcode in NO_DATA:
        return
    if command.kind not in _KINDS.get(command.opcode, set(BlockKind)) or epoch_of(command.version) > command.epoch:
        raise CapsuleError(f"{command.opcode.name} of {command.kind.name}, version {command.version:#x}")
    most = _MOST_BYTES.get(command.opcode, MAX_IO_BYTES)
    if command.opcode is CapsuleOpcode.DIGESTS:
        is_right = 0 < command.length <= MAX_DIGESTS
    else:
        is_right = 0 < command.length <= most and not (command.length % BLOCK_BYTES or command.offset % BLOCK_BYTES)
    if not is_right:
        raise CapsuleError(f"{command.opcode.name} of {command.length} at {command.offset}")


def reply_untrusted(data: bytes) -> CapsuleReply:
    """Return a reply. Raises CapsuleError."""
    if len(data) != _REPLY.size:
        raise CapsuleError(f"a reply of {len(data)} bytes; it has {_REPLY.size}")
    outcome, version_of_format, epoch, owner, mark, value = _REPLY.unpack(data)
    if version_of_format != _FORMAT or outcome > max(CapsuleOutcome):
        raise CapsuleError(f"a reply of format {version_of_format} with outcome {outcome}")
    if epoch > MAX_EPOCH or (mark > MAX_EPOCH and mark != BLANK):
        raise CapsuleError(f"a reply of epoch {epoch} and mark {mark}; {MAX_EPOCH} is the last one")
    return CapsuleReply(outcome=CapsuleOutcome(outcome), epoch=epoch, owner=owner, mark=mark, value=value)
