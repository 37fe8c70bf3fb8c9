"""Checks of a work request at the end that posts it.

A request that fits into no packet is a usage error of the caller, and raises. A request that can be encoded but not
carried out completes with a status.
"""

from __future__ import annotations

from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.errors import UsageError
from srd.proto.memory import Memory
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status


def check_work_request(opcode: Opcode, *, length: int, immediate: int | None, key: int, offset: int) -> None:
    """Raise UsageError for a request that no packet can encode."""
    if immediate is not None and not 0 <= immediate < 1 << 32:
        raise UsageError(f"immediate: {immediate} does not fit into 32 bits")
    if immediate is not None and opcode is Opcode.READ:
        raise UsageError(f"immediate: {immediate} goes with a send or a write; a read tells nobody")
    if not (0 <= key < 1 << 64 and 0 <= offset <= (1 << 64) - length):
        raise UsageError(f"key {key}, offset {offset}: with length {length} they do not fit into 64 bits")


def check_batch(length: int, *, immediate: int | None, packet_bytes: int) -> None:
    """Raise UsageError for a send that is not a message of one packet."""
    check_work_request(Opcode.SEND, length=length, immediate=immediate, key=0, offset=0)
    if not 0 <= length <= packet_bytes:
        raise UsageError(f"length: {length} bytes are not between 0 and {packet_bytes}, what one packet carries")


def refusal_status(
    opcode: Opcode, *, length: int, max_send_bytes: int, memory: Memory | None, local_key: int, local_offset: int
) -> Status | None:
    """Return why a request cannot be done; None: it may be. `max_send_bytes`: the longest SEND the responder takes."""
    if length > MAX_MESSAGE_BYTES:
        return Status.LOCAL_ERROR_BAD_LENGTH
    if opcode is Opcode.SEND:
        return Status.REMOTE_ERROR_BAD_LENGTH if length > max_send_bytes else None
    if opcode is Opcode.WRITE:
        return None
    if opcode is not Opcode.READ or memory is None:
        return Status.LOCAL_ERROR_UNSUPPORTED_OP
    target = memory.local_writable(local_key, offset=local_offset, length=length)
    return Status.LOCAL_ERROR_INVALID_LKEY if target is None else None
