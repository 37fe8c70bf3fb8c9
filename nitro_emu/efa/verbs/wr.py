"""Work requests and completions, with libibverbs' numbers as far as an EFA device has them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from nitro_emu.efa.abi.io import Sge
from nitro_emu.efa.verbs.resource import AddressHandle


class SendOps(IntFlag):
    """The operations that a queue pair's work request builder is created for (ibv_qp_create_send_ops_flags)."""

    RDMA_WRITE = 1
    RDMA_WRITE_WITH_IMM = 2
    SEND = 4
    SEND_WITH_IMM = 8
    RDMA_READ = 16


class WrOpcode(IntEnum):
    """The operation of a send request (ibv_wr_opcode)."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4


class SendFlags(IntFlag):
    """Flags of a send request (ibv_send_flags)."""

    SIGNALED = 2
    INLINE = 8


class WcStatus(IntEnum):
    """The status of a work completion (ibv_wc_status)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21


class WcOpcode(IntEnum):
    """The operation that has completed (ibv_wc_opcode). A READ completes as SEND, as in rdma-core."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WcFlags(IntFlag):
    """Flags of a work completion (ibv_wc_flags)."""

    WITH_IMM = 2


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
