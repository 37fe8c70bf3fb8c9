"""The admin queue: 64-byte commands (AQ), completions (ACQ) and asynchronous events (AENQ).

An entry is a header and a body. The bodies are in `commands` and `replies`, their numbers in `enums`. Layouts are
those of EFA's admin interface, version 0.1. What this transport leaves out: control buffers (their bits are
refused), and `extended_status` and `sq_head_indx` of a completion (0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple

from nitro_emu.efa.abi.commands import COMMANDS, Command, CommandBody, R
from nitro_emu.efa.abi.enums import AdminOpcode, AdminStatus
from nitro_emu.efa.abi.replies import Reply
from nitro_emu.errors import AbiError, AdminError

ENTRY_BYTES: Final = 64
"""The size of an entry of the AQ, the ACQ and the AENQ."""
QUEUE_DEPTH: Final = 64
"""Entries of an admin queue; the phase bit flips after so many."""
MAX_COMMAND_ID: Final = 0xFFF
"""A command id has 12 bits."""
UNSUPPORTED: Final = frozenset((AdminOpcode.CREATE_EQ, AdminOpcode.DESTROY_EQ, AdminOpcode.ALLOC_MR))
"""Commands of the kernel's driver: event queues are interrupt vectors, of which a completion queue has its own in the
form of a descriptor; fast registration (ALLOC_MR) is for verbs in the kernel."""

_AQ_HEADER = struct.Struct("<HBB")
_ACQ_HEADER = struct.Struct("<HBB4x")
_AENQ_HEADER = struct.Struct("<HHB3xQ")
_AENQ_DATA_BYTES = ENTRY_BYTES - _AENQ_HEADER.size
_PHASE = 1 << 0
_CONTROL_BUFFER = 1 << 1 | 1 << 2


class DecodedCommand(NamedTuple):
    """A command, and its header."""

    command_id: int
    phase: int
    command: Command


class AdminCompletion(NamedTuple, Generic[R]):
    """The completion of a command. `reply` is None unless it succeeded."""

    command_id: int
    phase: int
    status: AdminStatus
    reply: R | None


@dataclass(frozen=True, slots=True)
class AenqEntry:
    """An asynchronous event of a group (`AenqGroup`). `data` is padded with zeros to 48 bytes on its way."""

    group: int
    syndrome: int
    timestamp_us: int
    data: bytes = b""


def encode_command(command: Command, *, command_id: int, phase: int) -> bytes:
    """Return the 64 bytes of a command. Raises AbiError for a value that does not fit its field."""
    header = _AQ_HEADER.pack(command_id & MAX_COMMAND_ID, command.OPCODE, phase & _PHASE)
    return (header + command.pack()).ljust(ENTRY_BYTES, b"\0")


def decode_command_untrusted(data: bytes) -> DecodedCommand:
    """Take a command apart. Raises AdminError with the status for the driver, and the command id where it is known."""
    command_id = int.from_bytes(data[:2], "little") & MAX_COMMAND_ID if len(data) >= _AQ_HEADER.size else None
    if len(data) != ENTRY_BYTES:
        raise _malformed(f"entry: {len(data)} bytes instead of {ENTRY_BYTES}", command_id=command_id)
    raw_id, opcode, flags = _AQ_HEADER.unpack_from(data)
    if raw_id > MAX_COMMAND_ID:
        raise _malformed(f"command_id: {raw_id:#x} has reserved bits", command_id=command_id)
    if opcode in UNSUPPORTED:
        text = f"opcode: {AdminOpcode(opcode).name} is for the kernel's driver"
        raise AdminError(AdminStatus.UNSUPPORTED_OPCODE, text, command_id=command_id)
    if opcode not in COMMANDS:
        raise AdminError(AdminStatus.BAD_OPCODE, f"opcode: {opcode} is unknown", command_id=command_id)
    if flags & _CONTROL_BUFFER:
        raise _malformed("flags: the card cannot reach a control buffer", command_id=command_id)
    if flags & ~_PHASE:
        raise _malformed(f"flags: {flags:#x} has reserved bits", command_id=command_id)
    body = data[_AQ_HEADER.size :]
    command = COMMANDS[opcode].unpack(body)
    for name, reserved in command.RESERVED.items():
        if getattr(command, name) & reserved:
            raise _malformed(f"{name}: {getattr(command, name):#x} has reserved bits", command_id=command_id)
    if command.pack().ljust(len(body), b"\0") != body:
        raise _malformed(f"{type(command).__name__}: reserved bytes are not zero", command_id=command_id)
    return DecodedCommand(raw_id, flags, command)


def encode_reply(
    reply: Reply | None, *, command_id: int, phase: int, status: AdminStatus = AdminStatus.SUCCESS
) -> bytes:
    """Return the 64 bytes of a completion. Raises AbiError for a value that does not fit its field."""
    header = _ACQ_HEADER.pack(command_id & MAX_COMMAND_ID, status, phase & _PHASE)
    return (header + (reply.pack() if reply else b"")).ljust(ENTRY_BYTES, b"\0")


def decode_reply_untrusted(data: bytes, command: CommandBody[R]) -> AdminCompletion[R]:
    """Take the completion of a command apart. Raises AbiError for malformed bytes, and for what cannot succeed."""
    if len(data) != ENTRY_BYTES:
        raise AbiError(f"entry: {len(data)} bytes instead of {ENTRY_BYTES}", field="entry")
    command_id, raw_status, flags = _ACQ_HEADER.unpack_from(data)
    try:
        status = AdminStatus(raw_status)
    except ValueError as error:
        raise AbiError(f"status: {raw_status} is unknown", field="status") from error
    reply = None
    if status is AdminStatus.SUCCESS:
        if (layout := command.reply_type()) is None:
            raise AbiError(f"status: {command} has succeeded, which it cannot", field="status")
        reply = layout.unpack(data[_ACQ_HEADER.size :])
    return AdminCompletion(command_id & MAX_COMMAND_ID, flags & _PHASE, status, reply)


def encode_aenq(entry: AenqEntry, *, phase: int) -> bytes:
    """Return the 64 bytes of an event. Raises AbiError for a value that does not fit its field."""
    if len(entry.data) > _AENQ_DATA_BYTES:
        raise AbiError(f"data: {len(entry.data)} bytes, an event has room for {_AENQ_DATA_BYTES}", field="data")
    try:
        header = _AENQ_HEADER.pack(entry.group, entry.syndrome, phase & _PHASE, entry.timestamp_us)
    except struct.error as error:
        raise AbiError(f"{entry}: {error}") from error
    return (header + entry.data).ljust(ENTRY_BYTES, b"\0")


def decode_aenq_untrusted(data: bytes) -> tuple[int, AenqEntry]:
    """Return the phase bit of an event, and the event with all its 48 bytes of data. Raises AbiError for a wrong size.

    The group may be unknown: a driver ignores such events.
    """
    if len(data) != ENTRY_BYTES:
        raise AbiError(f"entry: {len(data)} bytes instead of {ENTRY_BYTES}", field="entry")
    group, syndrome, flags, timestamp_us = _AENQ_HEADER.unpack_from(data)
    return flags & _PHASE, AenqEntry(group, syndrome, timestamp_us, data[_AENQ_HEADER.size :])


def _malformed(text: str, *, command_id: int | None) -> AdminError:
    return AdminError(AdminStatus.MALFORMED_REQUEST, text, command_id=command_id)
