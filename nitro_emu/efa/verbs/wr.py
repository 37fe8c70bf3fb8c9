"""Work requests and completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nitro_emu.efa.abi.io import Sge
from nitro_emu.efa.verbs.enums import SendFlags, WcFlags, WcOpcode, WcStatus, WrOpcode
from nitro_emu.efa.verbs.pd import AddressHandle

__all__ = ["RecvRequest", "SendRequest", "Sge", "WorkCompletion"]


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A SEND, with or without an immediate: all that `QueuePair.post_send` takes, as in rdma-core."""

    ah: AddressHandle
    remote_qpn: int
    remote_qkey: int
    wr_id: int = 0
    sges: tuple[Sge, ...] = ()
    opcode: WrOpcode = WrOpcode.SEND
    flags: SendFlags = SendFlags.SIGNALED
    immediate: int = 0
    """In host order."""


@dataclass(frozen=True, slots=True)
class RecvRequest:
    """Buffers for one message."""

    wr_id: int = 0
    sges: tuple[Sge, ...] = ()


class WorkCompletion(NamedTuple):
    """The end of one request. Of a send request, only the fields up to `qp_num` mean something."""

    wr_id: int
    status: WcStatus
    vendor_error: int
    """The device's own status (`nitro_emu.efa.abi.io.CompStatus`)."""
    opcode: WcOpcode
    flags: WcFlags
    qp_num: int
    byte_len: int
    src_qp: int
    immediate: int
    """In host order."""
    ah: int
    """The sender's address handle; UNKNOWN_AH if the protection domain has none for it."""
    src_gid: bytes
    """The sender's GID if it has no address handle and the completion queue was created for it; else empty."""
    unsolicited: bool
    """Of a write with immediate: it consumed no receive request."""
