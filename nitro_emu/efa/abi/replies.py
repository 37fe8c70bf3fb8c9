"""The replies of the admin queue: what follows the header of a successful completion."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Self

from nitro_emu.efa.abi.enums import Feature, StatsType
from nitro_emu.errors import AbiError


@dataclass(frozen=True, slots=True)
class Body:
    """The part of an entry behind its header, as a dataclass whose fields are in the layout's order."""

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("<")

    def pack(self) -> bytes:
        """Return the bytes. Raises AbiError for a value that does not fit its field."""
        values = tuple(getattr(self, field.name) for field in fields(self))
        try:
            packed = self.LAYOUT.pack(*values)
        except struct.error as error:
            raise AbiError(f"{self}: {error}") from error
        if self.LAYOUT.unpack(packed) != values:  # struct cuts and pads bytes without an error
            raise AbiError(f"{self}: a field of bytes has the wrong size")
        return packed

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the body at the start of `data`, which must be long enough."""
        build: Any = cls
        body: Self = build(*cls.LAYOUT.unpack_from(data))
        return body


@dataclass(frozen=True, slots=True)
class Reply(Body):
    """A reply."""


@dataclass(frozen=True, slots=True)
class EmptyReply(Reply):
    """The reply of the commands that return nothing but their status."""


@dataclass(frozen=True, slots=True)
class CreateQpReply(Reply):
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
class QueryQpReply(Reply):
    """A queue pair's state."""

    LAYOUT: ClassVar = struct.Struct("<IIIBB2x")

    qp_state: int
    qkey: int
    sq_psn: int
    sq_draining: int
    rnr_retry: int


@dataclass(frozen=True, slots=True)
class CreateAhReply(Reply):
    """The number of the address handle."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    ah: int


@dataclass(frozen=True, slots=True)
class RegMrReply(Reply):
    """The keys of a memory region, and the interconnects (`validity`: `MrValidity`) by which the device reaches it."""

    LAYOUT: ClassVar = struct.Struct("<IIBBBB")

    l_key: int
    r_key: int
    validity: int = 0
    recv_ic_id: int = 0
    rdma_read_ic_id: int = 0
    rdma_recv_ic_id: int = 0


@dataclass(frozen=True, slots=True)
class CreateCqReply(Reply):
    """The completion queue's number, its actual depth, and its doorbell (valid with `CqReplyFlag.DB_VALID`)."""

    LAYOUT: ClassVar = struct.Struct("<HHII")

    cq_idx: int
    cq_actual_depth: int
    db_offset: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class AllocPdReply(Reply):
    """The number of the protection domain."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    pd: int


@dataclass(frozen=True, slots=True)
class AllocUarReply(Reply):
    """The number of the page of doorbells."""

    LAYOUT: ClassVar = struct.Struct("<H2x")

    uar: int


@dataclass(frozen=True, slots=True)
class FeatureReply(Reply):
    """A reply to GET_FEATURE."""

    FEATURE: ClassVar[Feature]


@dataclass(frozen=True, slots=True)
class DeviceAttr(FeatureReply):
    """DEVICE_ATTR: the device. `supported_features` has bit `1 << feature`; `device_caps` is a `DeviceCap`."""

    FEATURE: ClassVar = Feature.DEVICE_ATTR
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
class AenqConfig(FeatureReply):
    """AENQ_CONFIG: masks of the groups of events that the device can report, and that it does."""

    FEATURE: ClassVar = Feature.AENQ_CONFIG
    LAYOUT: ClassVar = struct.Struct("<II")

    supported_groups: int
    enabled_groups: int


@dataclass(frozen=True, slots=True)
class NetworkAttr(FeatureReply):
    """NETWORK_ATTR: the device's GID, and the payload of a packet in bytes."""

    FEATURE: ClassVar = Feature.NETWORK_ATTR
    LAYOUT: ClassVar = struct.Struct("<16sI")

    addr: bytes
    mtu: int


@dataclass(frozen=True, slots=True)
class QueueAttr(FeatureReply):
    """QUEUE_ATTR: the limits of queues and objects. `max_tx_batch` counts 64 bytes, 0 is no limit."""

    FEATURE: ClassVar = Feature.QUEUE_ATTR
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
class QueueAttr2(FeatureReply):
    """QUEUE_ATTR_2: inline data of the wide entries, and event counters."""

    FEATURE: ClassVar = Feature.QUEUE_ATTR_2
    LAYOUT: ClassVar = struct.Struct("<H6xIIQ")

    inline_buf_size_ex: int
    supported_event_counter_qp_events: int = 0
    max_event_counters: int = 0
    event_counter_max_val: int = 0


@dataclass(frozen=True, slots=True)
class HwHints(FeatureReply):
    """HW_HINTS: times for the driver; 0 leaves the choice to it."""

    FEATURE: ClassVar = Feature.HW_HINTS
    LAYOUT: ClassVar = struct.Struct("<4H")

    mmio_read_timeout_ms: int
    driver_watchdog_timeout_ms: int
    admin_completion_timeout_ms: int
    poll_interval_ms: int


@dataclass(frozen=True, slots=True)
class EventQueueAttr(FeatureReply):
    """EVENT_QUEUE_ATTR: the limits of event queues."""

    FEATURE: ClassVar = Feature.EVENT_QUEUE_ATTR
    LAYOUT: ClassVar = struct.Struct("<III")

    max_eq: int
    max_eq_depth: int
    event_bitmask: int


@dataclass(frozen=True, slots=True)
class StatsReply(Reply):
    """A reply to GET_STATS. `PREFIX` and a field's name are the name that Linux' driver has for the counter."""

    STATS: ClassVar[StatsType]
    PREFIX: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class BasicStats(StatsReply):
    """The counters of packets, and of those with a wrong queue key."""

    STATS: ClassVar = StatsType.BASIC
    LAYOUT: ClassVar = struct.Struct("<6Q")

    tx_bytes: int
    tx_pkts: int
    rx_bytes: int
    rx_pkts: int
    rx_drops: int
    qkey_viol: int = 0


@dataclass(frozen=True, slots=True)
class MessagesStats(StatsReply):
    """The counters of SENDs and receives."""

    STATS: ClassVar = StatsType.MESSAGES
    LAYOUT: ClassVar = struct.Struct("<4Q")

    send_bytes: int
    send_wrs: int
    recv_bytes: int
    recv_wrs: int


@dataclass(frozen=True, slots=True)
class RdmaReadStats(StatsReply):
    """The counters of RDMA READs, at the requester and at the responder (`read_resp_bytes`)."""

    STATS: ClassVar = StatsType.RDMA_READ
    PREFIX: ClassVar = "rdma_"
    LAYOUT: ClassVar = struct.Struct("<4Q")

    read_wrs: int
    read_bytes: int
    read_wr_err: int
    read_resp_bytes: int


@dataclass(frozen=True, slots=True)
class RdmaWriteStats(StatsReply):
    """The counters of RDMA WRITEs, at the requester and at the responder (`write_recv_bytes`)."""

    STATS: ClassVar = StatsType.RDMA_WRITE
    PREFIX: ClassVar = "rdma_"
    LAYOUT: ClassVar = struct.Struct("<4Q")

    write_wrs: int
    write_bytes: int
    write_wr_err: int
    write_recv_bytes: int


@dataclass(frozen=True, slots=True)
class NetworkStats(StatsReply):
    """The counters of retransmissions and of peers in trouble."""

    STATS: ClassVar = StatsType.NETWORK
    LAYOUT: ClassVar = struct.Struct("<5Q")

    retrans_bytes: int
    retrans_pkts: int
    retrans_timeout_events: int
    unresponsive_remote_events: int
    impaired_remote_conn_events: int


FEATURES: Final[Mapping[int, type[FeatureReply]]] = {
    each.FEATURE: each for each in (DeviceAttr, AenqConfig, NetworkAttr, QueueAttr, QueueAttr2, HwHints, EventQueueAttr)
}
"""The replies to GET_FEATURE. HOST_INFO has none: it needs a control buffer, which this transport lacks."""
STATS: Final[Mapping[int, type[StatsReply]]] = {
    each.STATS: each for each in (BasicStats, MessagesStats, RdmaReadStats, RdmaWriteStats, NetworkStats)
}
"""The replies to GET_STATS."""
