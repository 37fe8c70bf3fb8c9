"""What GET_FEATURE and GET_STATS answer."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Final

from nitro_emu.efa.abi import enums, limits, replies
from nitro_emu.efa.abi.memory import PAGE_BYTES
from nitro_emu.efa.card.event_ring import SUPPORTED_GROUPS, EventRing
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.errors import AdminError

SUB_CQS: Final = 1
"""Parts of a completion queue: hardware has several for its pipelines."""
CAPABILITIES: Final = (
    enums.DeviceCap.RDMA_READ
    | enums.DeviceCap.RNR_RETRY
    | enums.DeviceCap.RDMA_WRITE
    | enums.DeviceCap.UNSOLICITED_WRITE_RECV
)
_VERSION: Final = 1
_ADDRESS_BITS: Final = 48


def feature(vf: EfaFunction, number: int, *, events: EventRing | None) -> replies.FeatureReply:
    """Return a feature; `events`: of the program that asks. Raises AdminError for one that is not supported."""
    match number:
        case enums.Feature.DEVICE_ATTR:
            supported = sum(1 << each for each in replies.FEATURES)
            return replies.DeviceAttr(
                supported, PAGE_BYTES, _VERSION, _VERSION, _VERSION, 0, _ADDRESS_BITS, _ADDRESS_BITS, CAPABILITIES,
                limits.MAX_RDMA_BYTES,
            )  # fmt: skip
        case enums.Feature.AENQ_CONFIG:
            return replies.AenqConfig(SUPPORTED_GROUPS, 0 if events is None else events.enabled_groups)
        case enums.Feature.NETWORK_ATTR:
            return replies.NetworkAttr(vf.gid, vf.mtu_bytes)
        case enums.Feature.QUEUE_ATTR:
            return _queue_attr(vf)
        case enums.Feature.QUEUE_ATTR_2:
            return replies.QueueAttr2(limits.WIDE_INLINE_BYTES)
        case enums.Feature.HW_HINTS:
            return replies.HwHints(0, 0, 0, 0)
        case enums.Feature.EVENT_QUEUE_ATTR:
            return replies.EventQueueAttr(0, 0, 0)
    raise AdminError(enums.AdminStatus.ILLEGAL_PARAMETER, f"feature: {number} is not supported")


def _queue_attr(vf: EfaFunction) -> replies.QueueAttr:
    config = vf.config
    return replies.QueueAttr(
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


def stats(vf: EfaFunction, stats_type: int, *, scope: int) -> replies.StatsReply:
    """Return a group of counters. Raises AdminError for one that does not exist."""
    if scope != enums.StatsScope.ALL:
        raise AdminError(enums.AdminStatus.ILLEGAL_PARAMETER, f"scope: {scope}; counters are of the whole device")
    if (kind := replies.STATS.get(stats_type)) is None:
        raise AdminError(enums.AdminStatus.ILLEGAL_PARAMETER, f"stats_type: {stats_type} is unknown")
    counters = {**asdict(vf.counters()), "qkey_viol": vf.responder.qkey_violations}
    return kind(*(counters[kind.PREFIX + field.name] for field in fields(kind)))
