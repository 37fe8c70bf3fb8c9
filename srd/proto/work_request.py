"""Work requests: what `EndpointCore.post` takes, and their checks at the end that posts them (`ibv_send_wr` in verbs).

A request that fits into no packet is a usage error of the caller, and raises. A request that can be encoded but not
carried out completes with a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from srd.proto.base.errors import UsageError
from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.memory import Memory
from srd.proto.wire.data import Lanes, Opcode
from srd.proto.wire.status import Status


@dataclass(init=False)
class WorkRequest:
    """A send, a write or a read of `length` bytes."""

    request: int
    """The caller's number of it, as its Completion gives it (`wr_id` in verbs)."""
    length: int
    payload_offset: int
    """SEND, WRITE: where the bytes start, in the terms of the owner of the sockets."""
    opcode: Opcode
    immediate: int | None
    """SEND, WRITE: 32 bits for the responder's application."""
    key: int
    """WRITE, READ: the responder's registration. SEND: for the responder's `Destinations`, if it has any."""
    offset: int
    """WRITE, READ: where the range begins in that registration."""
    local_key: int
    """READ: this end's registration that the bytes go to."""
    local_offset: int
    """READ: where in that registration."""
    flow: int
    """WRITE without immediate: messages of different flows take turns, burst by burst; those of one go in the order of
    posting. All that needs credit goes in the order of posting. An emulated card's flows are its queue pairs."""

    def __init__(
        self,
        request: int,
        length: int,
        payload_offset: int = 0,
        opcode: Opcode = Opcode.SEND,
        immediate: int | None = None,
        key: int = 0,
        offset: int = 0,
        local_key: int = 0,
        local_offset: int = 0,
        flow: int = 0,
    ) -> None:
        self.request = request
        self.length = length
        self.payload_offset = payload_offset
        self.opcode = opcode
        self.immediate = immediate
        self.key = key
        self.offset = offset
        self.local_key = local_key
        self.local_offset = local_offset
        self.flow = flow

    def check(self) -> None:
        """Raise UsageError if no packet can encode it."""
        _check_immediate(self.immediate)
        if self.immediate is not None and self.opcode is Opcode.READ:
            raise UsageError(
                f"immediate: {self.immediate} goes with a send or a write; a read has no completion at the other end"
            )
        if not (0 <= self.key < 1 << 64 and 0 <= self.offset <= (1 << 64) - self.length):
            raise UsageError(
                f"key {self.key}, offset {self.offset}: with length {self.length} they do not fit into 64 bits"
            )

    def refusal(self, *, max_send_bytes: int, memory: Memory | None) -> Status | None:
        """Return why it cannot be done; None: it may be. `max_send_bytes`: the longest SEND the responder takes."""
        if self.length > MAX_MESSAGE_BYTES:
            return Status.LOCAL_ERROR_BAD_LENGTH
        if self.opcode is Opcode.SEND:
            return Status.REMOTE_ERROR_BAD_LENGTH if self.length > max_send_bytes else None
        if self.opcode is Opcode.WRITE:
            return None
        if self.opcode is not Opcode.READ or memory is None:
            return Status.LOCAL_ERROR_UNSUPPORTED_OP
        target = memory.local_writable(self.local_key, offset=self.local_offset, length=self.length)
        return Status.LOCAL_ERROR_INVALID_LKEY if target is None else None


@dataclass(init=False)
class BatchRequest:
    """Sends of one packet each, all of `length` bytes."""

    first_request: int
    """The number of the first; the others' follow."""
    payload_addresses: Lanes
    """Where each one's payload starts."""
    length: int
    immediate: int | None
    """Of all of them."""
    owner: Any
    """Kept alive until all have ended."""
    key: int
    """Of all of them; see `WorkRequest.key`."""

    def __init__(
        self,
        first_request: int,
        payload_addresses: Lanes,
        length: int,
        immediate: int | None = None,
        owner: Any = None,
        key: int = 0,
    ) -> None:
        self.first_request = first_request
        self.payload_addresses = payload_addresses
        self.length = length
        self.immediate = immediate
        self.owner = owner
        self.key = key

    def check(self, *, packet_bytes: int) -> None:
        """Raise UsageError if these are no messages of one packet, which carries `packet_bytes`."""
        _check_immediate(self.immediate)
        if not 0 <= self.length <= packet_bytes:
            raise UsageError(
                f"length: {self.length} bytes are not between 0 and {packet_bytes}, what one packet carries"
            )


def _check_immediate(immediate: int | None) -> None:
    if immediate is not None and not 0 <= immediate < 1 << 32:
        raise UsageError(f"immediate: {immediate} does not fit into 32 bits")
