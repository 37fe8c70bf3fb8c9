"""What GET_FEATURE and GET_STATS answer."""

from __future__ import annotations

from typing import Final

from nitro_emu.efa.abi import limits
from nitro_emu.efa.abi.admin import (
    AdminStatus,
    AenqConfig,
    BasicStats,
    DeviceAttr,
    DeviceCap,
    EventQueueAttr,
    Feature,
    FeatureReply,
    HwHints,
    MessagesStats,
    NetworkAttr,
    NetworkStats,
    QueueAttr,
    QueueAttr2,
    RdmaReadStats,
    RdmaWriteStats,
    StatsReply,
    StatsScope,
    StatsType,
)
from nitro_emu.efa.abi.memory import PAGE_BYTES
from nitro_emu.efa.card.event_ring import SUPPORTED_GROUPS, EventRing
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.errors import AdminError

SUB_CQS: Final = 1
"""Parts of a completion queue: hardware has several for its pipelines."""
FEATURES: Final = (
    Feature.DEVICE_ATTR,
    Feature.AENQ_CONFIG,
    Feature.NETWORK_ATTR,
    Feature.QUEUE_ATTR,
    Feature.HW_HINTS,
    Feature.EVENT_QUEUE_ATTR,
    Feature.QUEUE_ATTR_2,
)
CAPABILITIES: Final = (
    DeviceCap.RDMA_READ | DeviceCap.RNR_RETRY | DeviceCap.RDMA_WRITE | DeviceCap.UNSOLICITED_WRITE_RECV
)
_VERSION: Final = 1
_ADDRESS_BITS: Final = 48


def feature(vf: EfaFunction, number: int, *, events: EventRing | None) -> FeatureReply:
    """Return a feature; `events`: of the program that asks. Raises AdminError for one that is not supported."""
    match number:
        case Feature.DEVICE_ATTR:
            supported = sum(1 << each for each in FEATURES)
            return DeviceAttr(
                supported, PAGE_BYTES, _VERSION, _VERSION, _VERSION, 0, _ADDRESS_BITS, _ADDRESS_BITS, CAPABILITIES,
                limits.MAX_RDMA_BYTES,
            )  # fmt: skip
        case Feature.AENQ_CONFIG:
            return AenqConfig(SUPPORTED_GROUPS, 0 if events is None else events.enabled_groups)
        case Feature.NETWORK_ATTR:
            return NetworkAttr(vf.gid, vf.mtu_bytes)
        case Feature.QUEUE_ATTR:
            return _queue_attr(vf)
        case Feature.QUEUE_ATTR_2:
            return QueueAttr2(limits.WIDE_INLINE_BYTES)
        case Feature.HW_HINTS:
            return HwHints(0, 0, 0, 0)
        case Feature.EVENT_QUEUE_ATTR:
            return EventQueueAttr(0, 0, 0)
    raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"feature: {number} is not supported")


def _queue_attr(vf: EfaFunction) -> QueueAttr:
    config = vf.config
    return QueueAttr(
        max_qp=config.max_qps,
        max_sq_depth=limits.MAX_SQ_DEPTH,
        inline_buf_size=limits.INLINE_BYTES,
        max_rq_depth=limits.MAX_RQ_DEPTH,
        max_cq=config.max_cqs,
        max_cq_depth=limits.MAX_CQ_DEPTH,
        sub_cqs_per_cq=SUB_CQS,
        min_sq_depth=1,
        max_wr_send_sges=limits.MAX_SEND_SGES,
        max_wr_recv_sges=limits.MAX_RECV_SGES,
        max_mr=config.max_mrs,
        max_mr_pages=config.max_mr_bytes // PAGE_BYTES,
        max_pd=config.max_pds,
        max_ah=config.max_ahs,
        max_llq_size=limits.MAX_LLQ_BYTES,
        max_wr_rdma_sges=limits.MAX_RDMA_SGES,
        max_tx_batch=0,
    )


def stats(vf: EfaFunction, stats_type: int, *, scope: int) -> StatsReply:
    """Return a group of counters. Raises AdminError for one that does not exist."""
    if scope != StatsScope.ALL:
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"scope: {scope}; counters are of the whole device")
    port = vf.counters()
    match stats_type:
        case StatsType.BASIC:
            violations = vf.responder.qkey_violations
            return BasicStats(port.tx_bytes, port.tx_pkts, port.rx_bytes, port.rx_pkts, port.rx_drops, violations)
        case StatsType.MESSAGES:
            return MessagesStats(port.send_bytes, port.send_wrs, port.recv_bytes, port.recv_wrs)
        case StatsType.RDMA_READ:
            return RdmaReadStats(
                port.rdma_read_wrs, port.rdma_read_bytes, port.rdma_read_wr_err, port.rdma_read_resp_bytes
            )
        case StatsType.RDMA_WRITE:
            return RdmaWriteStats(
                port.rdma_write_wrs, port.rdma_write_bytes, port.rdma_write_wr_err, port.rdma_write_recv_bytes
            )
        case StatsType.NETWORK:
            return NetworkStats(
                port.retrans_bytes,
                port.retrans_pkts,
                port.retrans_timeout_events,
                port.unresponsive_remote_events,
                port.impaired_remote_conn_events,
            )
    raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"stats_type: {stats_type} is unknown")
