"""The numbers of the admin queue: opcodes, statuses, features, states and flag bits."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class AdminOpcode(IntEnum):
    """What a command asks for."""

    CREATE_QP = 1
    MODIFY_QP = 2
    QUERY_QP = 3
    DESTROY_QP = 4
    CREATE_AH = 5
    DESTROY_AH = 6
    REG_MR = 7
    DEREG_MR = 8
    CREATE_CQ = 9
    DESTROY_CQ = 10
    GET_FEATURE = 11
    SET_FEATURE = 12
    GET_STATS = 13
    ALLOC_PD = 14
    DEALLOC_PD = 15
    ALLOC_UAR = 16
    DEALLOC_UAR = 17
    CREATE_EQ = 18
    DESTROY_EQ = 19
    ALLOC_MR = 20


class AdminStatus(IntEnum):
    """How a command ended."""

    SUCCESS = 0
    RESOURCE_ALLOCATION_FAILURE = 1
    BAD_OPCODE = 2
    UNSUPPORTED_OPCODE = 3
    MALFORMED_REQUEST = 4
    ILLEGAL_PARAMETER = 5
    UNKNOWN_ERROR = 6
    RESOURCE_BUSY = 7


class Feature(IntEnum):
    """What GET_FEATURE and SET_FEATURE are about."""

    DEVICE_ATTR = 1
    AENQ_CONFIG = 2
    NETWORK_ATTR = 3
    QUEUE_ATTR = 4
    HW_HINTS = 5
    HOST_INFO = 6
    EVENT_QUEUE_ATTR = 7
    QUEUE_ATTR_2 = 8


class StatsType(IntEnum):
    """A group of counters of GET_STATS."""

    BASIC = 0
    MESSAGES = 1
    RDMA_READ = 2
    RDMA_WRITE = 3
    NETWORK = 4


class StatsScope(IntEnum):
    """Whose counters GET_STATS returns: all, or those of the queue `scope_modifier`."""

    ALL = 0
    QUEUE = 1


class AenqGroup(IntEnum):
    """Kinds of asynchronous events. AENQ_CONFIG's masks have bit `1 << group`."""

    FATAL_ERROR = 1
    WARNING = 2
    NOTIFICATION = 3
    KEEP_ALIVE = 4


class QpType(IntEnum):
    """The transport of a queue pair."""

    UD = 1
    SRD = 2


class QpState(IntEnum):
    """The state of a queue pair."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


_ALWAYS: Final = frozenset((QpState.RESET, QpState.ERR))
NEXT_STATES: Final = {
    QpState.RESET: _ALWAYS | {QpState.INIT},
    QpState.INIT: _ALWAYS | {QpState.INIT, QpState.RTR},
    QpState.RTR: _ALWAYS | {QpState.RTS},
    QpState.RTS: _ALWAYS | {QpState.RTS, QpState.SQD},
    QpState.SQD: _ALWAYS | {QpState.RTS, QpState.SQD},
    QpState.SQE: _ALWAYS | {QpState.RTS},
    QpState.ERR: _ALWAYS,
}
"""States that may follow one."""


class CreateQpFlag(IntFlag):
    """Flags of CREATE_QP. The rings are in the card's memfd, so the two `VIRT` bits stay 0."""

    SQ_VIRT = 1 << 0
    RQ_VIRT = 1 << 1
    UNSOLICITED_WRITE_RECV = 1 << 2
    SQ_64_BIT_REQ_ID = 1 << 3


class ModifyMask(IntFlag):
    """The fields of MODIFY_QP that the card is to set."""

    QP_STATE = 1 << 0
    CUR_QP_STATE = 1 << 1
    QKEY = 1 << 2
    SQ_PSN = 1 << 3
    SQ_DRAINED_ASYNC_NOTIFY = 1 << 4
    RNR_RETRY = 1 << 5


class MrValidity(IntFlag):
    """The fields of REG_MR's reply that name an interconnect."""

    RECV_IC_ID = 1 << 0
    RDMA_READ_IC_ID = 1 << 1
    RDMA_RECV_IC_ID = 1 << 2


class DeviceCap(IntFlag):
    """What a device can do (DEVICE_ATTR)."""

    RDMA_READ = 1 << 0
    RNR_RETRY = 1 << 1
    DATA_POLLING_128 = 1 << 2
    RDMA_WRITE = 1 << 3
    UNSOLICITED_WRITE_RECV = 1 << 4
    EVENT_COUNTERS = 1 << 5
    SQ_64_BIT_REQ_ID = 1 << 10


class CqCaps1(IntFlag):
    """The flags in CREATE_CQ's `caps_1`."""

    INTERRUPT_MODE = 1 << 5
    VIRT = 1 << 6


class CqCaps2(IntFlag):
    """The flags in CREATE_CQ's `caps_2`; the lowest 5 bits are the size of an entry in 32-bit words (4 or 8)."""

    SET_SRC_ADDR = 1 << 5
    SQ_COMP_64_BIT_REQ_ID = 1 << 6


class CqReplyFlag(IntFlag):
    """The flags in CREATE_CQ's reply."""

    DB_VALID = 1 << 0
