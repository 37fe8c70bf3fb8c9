"""The enumerations of libibverbs, with their numbers, under pyverbs' names.

Only what an EFA device has, and what programs for pyverbs name in passing. Each member is also a name of the module, as
in pyverbs: `IBV_QPT_DRIVER` is `ibv_qp_type.IBV_QPT_DRIVER`.
"""

# ruff: noqa: N801, D101 - libibverbs' names, and its documentation

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Any, Final

from nitro_emu.efa import verbs

IBV_LINK_LAYER_UNSPECIFIED: Final = 0
IBV_LINK_LAYER_INFINIBAND: Final = 1
IBV_LINK_LAYER_ETHERNET: Final = 2
IBV_WC_STANDARD_FLAGS: Final = 0x7F
_IBV_DEVICE_RAW_SCATTER_FCS: Final = 1 << 34
_IBV_DEVICE_PCI_WRITE_END_PADDING: Final = 1 << 36
_IBV_ADVISE_MR_FLAG_FLUSH: Final = 1
_IBV_ADVISE_MR_ADVICE_PREFETCH: Final = 0
_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: Final = 1
_IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: Final = 2


def _named(name: str, known: type[IntEnum | IntFlag], *, prefix: str, **more: int) -> Any:
    """Return an enumeration of the driver's by libibverbs' names, and `more` members, which EFA does not have."""
    kind: Any = IntFlag if issubclass(known, IntFlag) else IntEnum
    values = {member: each.value for member, each in known.__members__.items()} | more
    return kind(name, {prefix + member: value for member, value in values.items()}, module=__name__)


ibv_access_flags: Final = _named(
    "ibv_access_flags", verbs.Access, prefix="IBV_ACCESS_", REMOTE_ATOMIC=8, MW_BIND=16, ZERO_BASED=32, ON_DEMAND=64,
    HUGETLB=128, FLUSH_GLOBAL=256, FLUSH_PERSISTENT=512, RELAXED_ORDERING=1 << 20,
)  # fmt: skip
ibv_qp_create_send_ops_flags: Final = _named(
    "ibv_qp_create_send_ops_flags", verbs.SendOps, prefix="IBV_QP_EX_WITH_", ATOMIC_CMP_AND_SWP=1 << 5,
    ATOMIC_FETCH_AND_ADD=1 << 6, LOCAL_INV=1 << 7, BIND_MW=1 << 8, SEND_WITH_INV=1 << 9, TSO=1 << 10, FLUSH=1 << 11,
    ATOMIC_WRITE=1 << 12,
)  # fmt: skip
ibv_wr_opcode: Final = _named(
    "ibv_wr_opcode", verbs.WrOpcode, prefix="IBV_WR_", ATOMIC_CMP_AND_SWP=5, ATOMIC_FETCH_AND_ADD=6, LOCAL_INV=7,
    BIND_MW=8, SEND_WITH_INV=9, TSO=10, DRIVER1=11, FLUSH=14, ATOMIC_WRITE=15,
)  # fmt: skip
ibv_send_flags: Final = _named("ibv_send_flags", verbs.SendFlags, prefix="IBV_SEND_", FENCE=1, SOLICITED=4, IP_CSUM=16)
ibv_wc_status: Final = _named("ibv_wc_status", verbs.WcStatus, prefix="IBV_WC_", TM_ERR=22, TM_RNDV_INCOMPLETE=23)
ibv_wc_opcode: Final = _named(
    "ibv_wc_opcode", verbs.WcOpcode, prefix="IBV_WC_", COMP_SWAP=3, FETCH_ADD=4, BIND_MW=5, LOCAL_INV=6, TSO=7,
    FLUSH=8, ATOMIC_WRITE=9,
)  # fmt: skip
ibv_wc_flags: Final = _named("ibv_wc_flags", verbs.WcFlags, prefix="IBV_WC_", GRH=1, IP_CSUM_OK=4, WITH_INV=8)
ibv_qp_state: Final = _named("ibv_qp_state", verbs.QpState, prefix="IBV_QPS_", UNKNOWN=7)


class ibv_qp_type(IntEnum):
    IBV_QPT_RC = 2
    IBV_QPT_UC = 3
    IBV_QPT_UD = 4
    IBV_QPT_RAW_PACKET = 8
    IBV_QPT_XRC_SEND = 9
    IBV_QPT_XRC_RECV = 10
    IBV_QPT_DRIVER = 255


class ibv_qp_init_attr_mask(IntFlag):
    IBV_QP_INIT_ATTR_PD = 1
    IBV_QP_INIT_ATTR_XRCD = 2
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 4
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 8
    IBV_QP_INIT_ATTR_IND_TABLE = 16
    IBV_QP_INIT_ATTR_RX_HASH = 32
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64


class ibv_qp_create_flags(IntFlag):
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1
    IBV_QP_CREATE_SCATTER_FCS = 1 << 8
    IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9
    IBV_QP_CREATE_SOURCE_QPN = 1 << 10
    IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11


class ibv_qp_attr_mask(IntFlag):
    IBV_QP_STATE = 1 << 0
    IBV_QP_CUR_STATE = 1 << 1
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2
    IBV_QP_ACCESS_FLAGS = 1 << 3
    IBV_QP_PKEY_INDEX = 1 << 4
    IBV_QP_PORT = 1 << 5
    IBV_QP_QKEY = 1 << 6
    IBV_QP_AV = 1 << 7
    IBV_QP_PATH_MTU = 1 << 8
    IBV_QP_TIMEOUT = 1 << 9
    IBV_QP_RETRY_CNT = 1 << 10
    IBV_QP_RNR_RETRY = 1 << 11
    IBV_QP_RQ_PSN = 1 << 12
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13
    IBV_QP_ALT_PATH = 1 << 14
    IBV_QP_MIN_RNR_TIMER = 1 << 15
    IBV_QP_SQ_PSN = 1 << 16
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17
    IBV_QP_PATH_MIG_STATE = 1 << 18
    IBV_QP_CAP = 1 << 19
    IBV_QP_DEST_QPN = 1 << 20
    IBV_QP_RATE_LIMIT = 1 << 25


class ibv_port_state(IntEnum):
    IBV_PORT_NOP = 0
    IBV_PORT_DOWN = 1
    IBV_PORT_INIT = 2
    IBV_PORT_ARMED = 3
    IBV_PORT_ACTIVE = 4
    IBV_PORT_ACTIVE_DEFER = 5


class ibv_mtu(IntEnum):
    IBV_MTU_256 = 1
    IBV_MTU_512 = 2
    IBV_MTU_1024 = 3
    IBV_MTU_2048 = 4
    IBV_MTU_4096 = 5


class ibv_gid_type_sysfs(IntEnum):
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0
    IBV_GID_TYPE_SYSFS_ROCE_V2 = 1


class ibv_xrcd_init_attr_mask(IntFlag):
    IBV_XRCD_INIT_ATTR_FD = 1
    IBV_XRCD_INIT_ATTR_OFLAGS = 2


class ibv_srq_type(IntEnum):
    IBV_SRQT_BASIC = 0
    IBV_SRQT_XRC = 1
    IBV_SRQT_TM = 2


class ibv_srq_init_attr_mask(IntFlag):
    IBV_SRQ_INIT_ATTR_TYPE = 1
    IBV_SRQ_INIT_ATTR_PD = 2
    IBV_SRQ_INIT_ATTR_XRCD = 4
    IBV_SRQ_INIT_ATTR_CQ = 8
    IBV_SRQ_INIT_ATTR_TM = 16


class ibv_odp_general_caps(IntFlag):
    IBV_ODP_SUPPORT = 1
    IBV_ODP_SUPPORT_IMPLICIT = 2


class ibv_device_cap_flags(IntFlag):
    IBV_DEVICE_MEM_WINDOW = 1 << 17


class ibv_atomic_cap(IntEnum):
    IBV_ATOMIC_NONE = 0
    IBV_ATOMIC_HCA = 1
    IBV_ATOMIC_GLOB = 2


class ibv_raw_packet_caps(IntFlag):
    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1
    IBV_RAW_PACKET_CAP_SCATTER_FCS = 2


class ibv_mw_type(IntEnum):
    IBV_MW_TYPE_1 = 1
    IBV_MW_TYPE_2 = 2


class ibv_selectivity_level(IntEnum):
    IBV_FLUSH_RANGE = 0
    IBV_FLUSH_MR = 1


class ibv_tph_mem_type(IntEnum):
    IBV_TPH_MEM_TYPE_VM = 0
    IBV_TPH_MEM_TYPE_PM = 1


class ibv_dmah_init_attr_mask(IntFlag):
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1
    IBV_DMAH_INIT_ATTR_MASK_PH = 2
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 4


class ibv_rereg_mr_flags(IntFlag):
    IBV_REREG_MR_CHANGE_TRANSLATION = 1
    IBV_REREG_MR_CHANGE_PD = 2
    IBV_REREG_MR_CHANGE_ACCESS = 4


_MEMBERS: Final[dict[str, Enum]] = {
    name: member
    for enumeration in list(globals().values())
    if isinstance(enumeration, type)
    and issubclass(enumeration, IntEnum | IntFlag)
    and enumeration.__module__ == __name__
    for name, member in enumeration.__members__.items()
}


def __getattr__(name: str) -> Enum:
    """Return a member by its name alone (PEP 562)."""
    try:
        return _MEMBERS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    """Return the names of the module, those of the members included."""
    return sorted([*globals(), *_MEMBERS])
