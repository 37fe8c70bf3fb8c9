"""The replies of the admin queue: what follows the header of a successful completion."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from nitro_emu.efa.abi.commands import Body
from nitro_emu.efa.abi.enums import AdminOpcode, Feature, StatsType


@dataclass(frozen=True, slots=True)
class EmptyReply(Body):
    """The reply of the commands that return nothing but their status."""


@dataclass(frozen=True, slots=True)
class CreateQpReply(Body):
    """The queue pair's names, its doorbells in the UAR memfd, and where its SQ begins in the ring memfd."""

    LAYOUT: ClassVar = struct.Struct("<IH2xHHIII")

    qp_handle: int
    qp_num: int
    send_sub_cq_idx: int
    recv_sub_cq_idx: int
    sq_db_offset: int
    rq_db_offset: int
    llq_descriptors_offset: int


@dataclass(frozen=True, slots=True)
class QueryQpReply(Body):
    """A queue pair's state."""

    LAYOUT: ClassVar = struct.Struct("<IIIBB2x")

    qp_state: int
    qkey: int
    sq_psn: int
    sq_draining: int
    rnr_retry: int


@dataclass(frozen=True, slots=True)
class CreateAhReply(Body):
    """The number of the address handle."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    ah: int


@dataclass(frozen=True, slots=True)
class RegMrReply(Body):
    """The keys of a memory region, and the interconnects (`validity`: `MrValidity`) by which the device reaches it."""

    LAYOUT: ClassVar = struct.Struct("<IIBBBB")

    l_key: int
    r_key: int
    validity: int = 0
    recv_ic_id: int = 0
    rdma_read_ic_id: int = 0
    rdma_recv_ic_id: int = 0


@dataclass(frozen=True, slots=True)
class CreateCqReply(Body):
    """The completion queue's number, its actual depth, and its doorbell (valid with `CqReplyFlag.DB_VALID`)."""

    LAYOUT: ClassVar = struct.Struct("<HHII")

    cq_idx: int
    cq_actual_depth: int
    db_offset: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class AllocPdReply(Body):
    """The number of the protection domain."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    pd: int


@dataclass(frozen=True, slots=True)
class AllocUarReply(Body):
    """The number of the page of doorbells."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    uar: int


@dataclass(frozen=True, slots=True)
class DeviceAttr(Body):
    """DEVICE_ATTR: the device. `supported_features` has bit `1 << feature`; `device_caps` is a `DeviceCap`."""

    LAYOUT: ClassVar = struct.Struct("<QQIIIHBBIIQH2x4x")

    supported_features: int
    page_size_cap: int
    fw_version: int
    admin_api_version: int
    device_version: int
    db_bar: int
    phys_addr_width: int
    virt_addr_width: int
    device_caps: int
    max_rdma_size: int
    guid: int = 0
    max_link_speed_gbps: int = 0


@dataclass(frozen=True, slots=True)
class AenqConfig(Body):
    """AENQ_CONFIG: masks of the groups of events that the device can report, and that it does."""

    LAYOUT: ClassVar = struct.Struct("<II")

    supported_groups: int
    enabled_groups: int


@dataclass(frozen=True, slots=True)
class NetworkAttr(Body):
    """NETWORK_ATTR: the device's GID, and the payload of a packet in bytes."""

    LAYOUT: ClassVar = struct.Struct("<16sI")

    addr: bytes
    mtu: int


@dataclass(frozen=True, slots=True)
class QueueAttr(Body):
    """QUEUE_ATTR: the limits of queues and objects. `max_tx_batch` counts 64 bytes, 0 is no limit."""

    LAYOUT: ClassVar = struct.Struct("<6I4H5I2H")

    max_qp: int
    max_sq_depth: int
    inline_buf_size: int
    max_rq_depth: int
    max_cq: int
    max_cq_depth: int
    sub_cqs_per_cq: int
    min_sq_depth: int
    max_wr_send_sges: int
    max_wr_recv_sges: int
    max_mr: int
    max_mr_pages: int
    max_pd: int
    max_ah: int
    max_llq_size: int
    max_wr_rdma_sges: int
    max_tx_batch: int


@dataclass(frozen=True, slots=True)
class QueueAttr2(Body):
    """QUEUE_ATTR_2: inline data of the wide entries, and event counters."""

    LAYOUT: ClassVar = struct.Struct("<H6xIIQ")

    inline_buf_size_ex: int
    supported_event_counter_qp_events: int = 0
    max_event_counters: int = 0
    event_counter_max_val: int = 0


@dataclass(frozen=True, slots=True)
class HwHints(Body):
    """HW_HINTS: times for the driver; 0 leaves the choice to it."""

    LAYOUT: ClassVar = struct.Struct("<4H")

    mmio_read_timeout_ms: int
    driver_watchdog_timeout_ms: int
    admin_completion_timeout_ms: int
    poll_interval_ms: int


@dataclass(frozen=True, slots=True)
class EventQueueAttr(Body):
    """EVENT_QUEUE_ATTR: the limits of event queues."""

    LAYOUT: ClassVar = struct.Struct("<III")

    max_eq: int
    max_eq_depth: int
    event_bitmask: int


@dataclass(frozen=True, slots=True)
class BasicStats(Body):
    """The counters of packets, and of those with a wrong queue key."""

    LAYOUT: ClassVar = struct.Struct("<6Q")

    tx_bytes: int
    tx_pkts: int
    rx_bytes: int
    rx_pkts: int
    rx_drops: int
    qkey_viol: int = 0


@dataclass(frozen=True, slots=True)
class MessagesStats(Body):
    """The counters of SENDs and receives."""

    LAYOUT: ClassVar = struct.Struct("<4Q")

    send_bytes: int
    send_wrs: int
    recv_bytes: int
    recv_wrs: int


@dataclass(frozen=True, slots=True)
class RdmaReadStats(Body):
    """The counters of RDMA READs, at the requester and at the responder (`read_resp_bytes`)."""

    LAYOUT: ClassVar = struct.Struct("<4Q")

    read_wrs: int
    read_bytes: int
    read_wr_err: int
    read_resp_bytes: int


@dataclass(frozen=True, slots=True)
class RdmaWriteStats(Body):
    """The counters of RDMA WRITEs, at the requester and at the responder (`write_recv_bytes`)."""

    LAYOUT: ClassVar = struct.Struct("<4Q")

    write_wrs: int
    write_bytes: int
    write_wr_err: int
    write_recv_bytes: int


@dataclass(frozen=True, slots=True)
class NetworkStats(Body):
    """The counters of retransmissions and of peers in trouble."""

    LAYOUT: ClassVar = struct.Struct("<5Q")

    retrans_bytes: int
    retrans_pkts: int
    retrans_timeout_events: int
    unresponsive_remote_events: int
    impaired_remote_conn_events: int


FeatureReply: TypeAlias = DeviceAttr | AenqConfig | NetworkAttr | QueueAttr | QueueAttr2 | HwHints | EventQueueAttr
"""Every reply to GET_FEATURE."""
StatsReply: TypeAlias = BasicStats | MessagesStats | RdmaReadStats | RdmaWriteStats | NetworkStats
"""Every reply to GET_STATS."""
Reply: TypeAlias = (
    EmptyReply
    | CreateQpReply
    | QueryQpReply
    | CreateAhReply
    | RegMrReply
    | CreateCqReply
    | AllocPdReply
    | AllocUarReply
    | FeatureReply
    | StatsReply
)
"""Every reply."""

REPLIES: Final[Mapping[AdminOpcode, type[Reply]]] = {
    AdminOpcode.CREATE_QP: CreateQpReply,
    AdminOpcode.MODIFY_QP: EmptyReply,
    AdminOpcode.QUERY_QP: QueryQpReply,
    AdminOpcode.DESTROY_QP: EmptyReply,
    AdminOpcode.CREATE_AH: CreateAhReply,
    AdminOpcode.DESTROY_AH: EmptyReply,
    AdminOpcode.REG_MR: RegMrReply,
    AdminOpcode.DEREG_MR: EmptyReply,
    AdminOpcode.CREATE_CQ: CreateCqReply,
    AdminOpcode.DESTROY_CQ: EmptyReply,
    AdminOpcode.SET_FEATURE: EmptyReply,
    AdminOpcode.ALLOC_PD: AllocPdReply,
    AdminOpcode.DEALLOC_PD: EmptyReply,
    AdminOpcode.ALLOC_UAR: AllocUarReply,
    AdminOpcode.DEALLOC_UAR: EmptyReply,
}
"""The replies whose layout follows from the opcode: all but GET_FEATURE's and GET_STATS'."""
FEATURE_REPLIES: Final[Mapping[int, type[FeatureReply]]] = {
    Feature.DEVICE_ATTR: DeviceAttr,
    Feature.AENQ_CONFIG: AenqConfig,
    Feature.NETWORK_ATTR: NetworkAttr,
    Feature.QUEUE_ATTR: QueueAttr,
    Feature.HW_HINTS: HwHints,
    Feature.EVENT_QUEUE_ATTR: EventQueueAttr,
    Feature.QUEUE_ATTR_2: QueueAttr2,
}
"""The replies to GET_FEATURE. HOST_INFO has none: it needs a control buffer, which this transport lacks."""
STATS_REPLIES: Final[Mapping[int, type[StatsReply]]] = {
    StatsType.BASIC: BasicStats,
    StatsType.MESSAGES: MessagesStats,
    StatsType.RDMA_READ: RdmaReadStats,
    StatsType.RDMA_WRITE: RdmaWriteStats,
    StatsType.NETWORK: NetworkStats,
}
"""The replies to GET_STATS."""
