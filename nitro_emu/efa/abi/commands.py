"""The commands of the admin queue: what follows the header of an entry, one class an opcode.

Fields keep EFA's order and widths; reserved bytes have no field and are zero. Numbers that a device may not know (a QP
type, a feature) stay plain integers, because it is the card that judges them. Physical addresses stay 0: in this
transport memory travels as descriptors beside the entry.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from nitro_emu.efa.abi import replies
from nitro_emu.efa.abi.enums import AdminOpcode, CqCaps1, CqCaps2

_WORD_BYTES = 4
_ENTRY_WORDS_MASK = 0x1F
R = TypeVar("R", bound=replies.Reply)


@dataclass(frozen=True, slots=True)
class CommandBody(replies.Body, Generic[R]):
    """A command that is answered by an `R`. `RESERVED` has the bits of a field that must be zero."""

    OPCODE: ClassVar[AdminOpcode]
    REPLY: ClassVar[Any] = replies.EmptyReply
    RESERVED: ClassVar[Mapping[str, int]] = {}

    def reply_type(self) -> type[R] | None:
        """Return what a success is answered by; None: it never succeeds."""
        found: type[R] = self.REPLY
        return found


@dataclass(frozen=True, slots=True)
class CreateQp(CommandBody[replies.CreateQpReply]):
    """Create a queue pair. Depths and sizes are requests; the ring's memory comes with the reply."""

    OPCODE: ClassVar = AdminOpcode.CREATE_QP
    REPLY: ClassVar = replies.CreateQpReply
    LAYOUT: ClassVar = struct.Struct("<HBBQQ8IHBx4x")
    RESERVED: ClassVar = {"flags": 0xF0}

    pd: int
    qp_type: int
    flags: int = 0
    sq_base_addr: int = 0
    rq_base_addr: int = 0
    send_cq_idx: int = 0
    recv_cq_idx: int = 0
    sq_l_key: int = 0
    rq_l_key: int = 0
    send_queue_ring_size: int = 0
    send_queue_depth: int = 0
    recv_queue_ring_size: int = 0
    recv_queue_depth: int = 0
    uar: int = 0
    sl: int = 0


@dataclass(frozen=True, slots=True)
class ModifyQp(CommandBody[replies.EmptyReply]):
    """Set the fields of a queue pair that `modify_mask` (`ModifyMask`) names."""

    OPCODE: ClassVar = AdminOpcode.MODIFY_QP
    LAYOUT: ClassVar = struct.Struct("<6IBB2x")
    RESERVED: ClassVar = {"modify_mask": 0xFFFFFFC0}

    modify_mask: int
    qp_handle: int
    qp_state: int = 0
    cur_qp_state: int = 0
    qkey: int = 0
    sq_psn: int = 0
    sq_drained_async_notify: int = 0
    rnr_retry: int = 0


@dataclass(frozen=True, slots=True)
class QueryQp(CommandBody[replies.QueryQpReply]):
    """Ask for a queue pair's state."""

    OPCODE: ClassVar = AdminOpcode.QUERY_QP
    REPLY: ClassVar = replies.QueryQpReply
    LAYOUT: ClassVar = struct.Struct("<I")

    qp_handle: int


@dataclass(frozen=True, slots=True)
class DestroyQp(CommandBody[replies.EmptyReply]):
    """Destroy a queue pair."""

    OPCODE: ClassVar = AdminOpcode.DESTROY_QP
    LAYOUT: ClassVar = struct.Struct("<I")

    qp_handle: int


@dataclass(frozen=True, slots=True)
class CreateAh(CommandBody[replies.CreateAhReply]):
    """Create an address handle for the GID `dest_addr`."""

    OPCODE: ClassVar = AdminOpcode.CREATE_AH
    REPLY: ClassVar = replies.CreateAhReply
    LAYOUT: ClassVar = struct.Struct("<16sH2x")

    dest_addr: bytes
    pd: int


@dataclass(frozen=True, slots=True)
class DestroyAh(CommandBody[replies.EmptyReply]):
    """Destroy an address handle."""

    OPCODE: ClassVar = AdminOpcode.DESTROY_AH
    LAYOUT: ClassVar = struct.Struct("<HH")

    ah: int
    pd: int


@dataclass(frozen=True, slots=True)
class RegMr(CommandBody[replies.RegMrReply]):
    """Register a memory region of `mr_length` bytes that the application has at `iova`.

    EFA has room for four pages' addresses here. The first is `memory_offset`: where the region begins in the memfd that
    comes along. The others are zero. `flags` has log2 of the page size in bits 5:0, and bit 7 for physical addresses.
    """

    OPCODE: ClassVar = AdminOpcode.REG_MR
    REPLY: ClassVar = replies.RegMrReply
    LAYOUT: ClassVar = struct.Struct("<H2xQ24xQBB2xIQ")
    RESERVED: ClassVar = {"flags": 0x40, "permissions": 0xF8}

    pd: int
    memory_offset: int
    mr_length: int
    flags: int
    permissions: int
    page_num: int
    iova: int


@dataclass(frozen=True, slots=True)
class DeregMr(CommandBody[replies.EmptyReply]):
    """End a registration."""

    OPCODE: ClassVar = AdminOpcode.DEREG_MR
    LAYOUT: ClassVar = struct.Struct("<I")

    l_key: int


@dataclass(frozen=True, slots=True)
class CreateCq(CommandBody[replies.CreateCqReply]):
    """Create a completion queue. `cq_caps` makes the two fields of flags."""

    OPCODE: ClassVar = AdminOpcode.CREATE_CQ
    REPLY: ClassVar = replies.CreateCqReply
    LAYOUT: ClassVar = struct.Struct("<BBHH2xQIHH")
    RESERVED: ClassVar = {"caps_1": 0x9F, "caps_2": 0x80}

    caps_1: int
    caps_2: int
    cq_depth: int
    eqn: int = 0
    cq_ba: int = 0
    l_key: int = 0
    num_sub_cqs: int = 1
    uar: int = 0

    @property
    def entry_bytes(self) -> int:
        """The size of an entry: 16, or 32 with the source's address."""
        return (self.caps_2 & _ENTRY_WORDS_MASK) * _WORD_BYTES

    @property
    def interrupt_mode(self) -> bool:
        """Whether completions can raise events."""
        return bool(self.caps_1 & CqCaps1.INTERRUPT_MODE)

    @property
    def set_src_addr(self) -> bool:
        """Whether completions from sources without an address handle carry their GID."""
        return bool(self.caps_2 & CqCaps2.SET_SRC_ADDR)


def cq_caps(*, entry_bytes: int, interrupt_mode: bool = False, set_src_addr: bool = False) -> tuple[int, int]:
    """Return `caps_1` and `caps_2` of CREATE_CQ."""
    caps_1 = CqCaps1.INTERRUPT_MODE if interrupt_mode else 0
    caps_2 = entry_bytes // _WORD_BYTES | (CqCaps2.SET_SRC_ADDR if set_src_addr else 0)
    return int(caps_1), int(caps_2)


@dataclass(frozen=True, slots=True)
class DestroyCq(CommandBody[replies.EmptyReply]):
    """Destroy a completion queue."""

    OPCODE: ClassVar = AdminOpcode.DESTROY_CQ
    LAYOUT: ClassVar = struct.Struct("<H2x")

    cq_idx: int


@dataclass(frozen=True, slots=True)
class GetFeature(CommandBody[replies.FeatureReply]):
    """Ask for a `Feature`. The control buffer stays empty: all answers fit into an entry."""

    OPCODE: ClassVar = AdminOpcode.GET_FEATURE
    LAYOUT: ClassVar = struct.Struct("<IQxB2x")

    buffer_length: int = 0
    buffer_address: int = 0
    feature_id: int = 0

    def reply_type(self) -> type[replies.FeatureReply] | None:
        """Return the feature's layout."""
        return replies.FEATURES.get(self.feature_id)


@dataclass(frozen=True, slots=True)
class SetFeature(CommandBody[replies.EmptyReply]):
    """Set a `Feature`. Only AENQ_CONFIG can be set, so its two fields are the ones here."""

    OPCODE: ClassVar = AdminOpcode.SET_FEATURE
    LAYOUT: ClassVar = struct.Struct("<IQxB2xII")

    buffer_length: int = 0
    buffer_address: int = 0
    feature_id: int = 0
    supported_groups: int = 0
    enabled_groups: int = 0


@dataclass(frozen=True, slots=True)
class GetStats(CommandBody[replies.StatsReply]):
    """Ask for a group of counters (`StatsType`), of all or of one queue (`StatsScope`)."""

    OPCODE: ClassVar = AdminOpcode.GET_STATS
    LAYOUT: ClassVar = struct.Struct("<IQBBH")

    buffer_length: int = 0
    buffer_address: int = 0
    stats_type: int = 0
    scope: int = 0
    scope_modifier: int = 0

    def reply_type(self) -> type[replies.StatsReply] | None:
        """Return the group's layout."""
        return replies.STATS.get(self.stats_type)


@dataclass(frozen=True, slots=True)
class AllocPd(CommandBody[replies.AllocPdReply]):
    """Allocate a protection domain."""

    OPCODE: ClassVar = AdminOpcode.ALLOC_PD
    REPLY: ClassVar = replies.AllocPdReply


@dataclass(frozen=True, slots=True)
class DeallocPd(CommandBody[replies.EmptyReply]):
    """Free a protection domain."""

    OPCODE: ClassVar = AdminOpcode.DEALLOC_PD
    LAYOUT: ClassVar = struct.Struct("<H2x")

    pd: int


@dataclass(frozen=True, slots=True)
class AllocUar(CommandBody[replies.AllocUarReply]):
    """Allocate a page of doorbells, with the status page and the two eventfds that belong to it."""

    OPCODE: ClassVar = AdminOpcode.ALLOC_UAR
    REPLY: ClassVar = replies.AllocUarReply


@dataclass(frozen=True, slots=True)
class DeallocUar(CommandBody[replies.EmptyReply]):
    """Free a page of doorbells."""

    OPCODE: ClassVar = AdminOpcode.DEALLOC_UAR
    LAYOUT: ClassVar = struct.Struct("<H2x")

    uar: int


Command: TypeAlias = CommandBody[Any]
"""Any command."""

COMMANDS: Final[Mapping[int, type[Command]]] = {
    each.OPCODE: each
    for each in (
        CreateQp,
        ModifyQp,
        QueryQp,
        DestroyQp,
        CreateAh,
        DestroyAh,
        RegMr,
        DeregMr,
        CreateCq,
        DestroyCq,
        GetFeature,
        SetFeature,
        GetStats,
        AllocPd,
        DeallocPd,
        AllocUar,
        DeallocUar,
    )
}
"""Every command that a card carries out, by its opcode."""
