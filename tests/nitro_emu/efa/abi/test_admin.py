"""The admin queue's entries: offsets as in EFA's headers, round trips, and entries that no driver would send."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from devmem.registry import Access
from nitro_emu.efa.abi import admin, commands, enums, replies
from nitro_emu.efa.abi.enums import AdminOpcode, AdminStatus, Feature, StatsType
from nitro_emu.errors import AbiError, AdminError

AQ_HEADER_BYTES, ACQ_HEADER_BYTES, AENQ_HEADER_BYTES = 4, 8, 16
BYTES_FIELDS = {"dest_addr", "addr"}


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


def field_value(name: str, *, size: int, fill: int) -> int | bytes:
    raw = bytes([fill]) * size
    return raw if name in BYTES_FIELDS else int.from_bytes(raw, "little")


def body_with(cls: Any, offsets: dict[str, tuple[int, int]], *, filled: str) -> Any:
    values = {name: field_value(name, size=size, fill=0xFF * (name == filled)) for name, (_, size) in offsets.items()}
    return cls(**values)


# struct efa_admin_*_cmd behind the header of 4 bytes: fields and their sizes in order, - for reserved bytes.
COMMANDS = """
CreateQp       pd:2 qp_type:1 flags:1 sq_base_addr:8 rq_base_addr:8 send_cq_idx:4 recv_cq_idx:4 sq_l_key:4 rq_l_key:4
               send_queue_ring_size:4 send_queue_depth:4 recv_queue_ring_size:4 recv_queue_depth:4 uar:2 sl:1
ModifyQp       modify_mask:4 qp_handle:4 qp_state:4 cur_qp_state:4 qkey:4 sq_psn:4 sq_drained_async_notify:1
               rnr_retry:1
QueryQp        qp_handle:4
DestroyQp      qp_handle:4
CreateAh       dest_addr:16 pd:2
DestroyAh      ah:2 pd:2
RegMr          pd:2 -:2 memory_offset:8 -:24 mr_length:8 flags:1 permissions:1 -:2 page_num:4 iova:8
DeregMr        l_key:4
CreateCq       caps_1:1 caps_2:1 cq_depth:2 eqn:2 -:2 cq_ba:8 l_key:4 num_sub_cqs:2 uar:2
DestroyCq      cq_idx:2
GetFeature     buffer_length:4 buffer_address:8 -:1 feature_id:1
SetFeature     buffer_length:4 buffer_address:8 -:1 feature_id:1 -:2 supported_groups:4 enabled_groups:4
GetStats       buffer_length:4 buffer_address:8 stats_type:1 scope:1 scope_modifier:2
AllocPd
DeallocPd      pd:2
AllocUar
DeallocUar     uar:2
"""
# The same of struct efa_admin_*_resp, efa_admin_feature_* and efa_admin_*_stats, behind a header of 8 bytes.
REPLIES = """
EmptyReply
CreateQpReply  qp_handle:4 qp_num:2 -:2 send_sub_cq_idx:2 recv_sub_cq_idx:2 sq_db_offset:4 rq_db_offset:4
               llq_descriptors_offset:4
QueryQpReply   qp_state:4 qkey:4 sq_psn:4 sq_draining:1 rnr_retry:1
CreateAhReply  ah:2
RegMrReply     l_key:4 r_key:4 validity:1 recv_ic_id:1 rdma_read_ic_id:1 rdma_recv_ic_id:1
CreateCqReply  cq_idx:2 cq_actual_depth:2 db_offset:4 flags:4
AllocPdReply   pd:2
AllocUarReply  uar:2
DeviceAttr     supported_features:8 page_size_cap:8 fw_version:4 admin_api_version:4 device_version:4 db_bar:2
               phys_addr_width:1 virt_addr_width:1 device_caps:4 max_rdma_size:4 guid:8 max_link_speed_gbps:2
AenqConfig     supported_groups:4 enabled_groups:4
NetworkAttr    addr:16 mtu:4
QueueAttr      max_qp:4 max_sq_depth:4 inline_buf_size:4 max_rq_depth:4 max_cq:4 max_cq_depth:4 sub_cqs_per_cq:2
               min_sq_depth:2 max_wr_send_sges:2 max_wr_recv_sges:2 max_mr:4 max_mr_pages:4 max_pd:4 max_ah:4
               max_llq_size:4 max_wr_rdma_sges:2 max_tx_batch:2
QueueAttr2     inline_buf_size_ex:2 -:6 supported_event_counter_qp_events:4 max_event_counters:4
               event_counter_max_val:8
HwHints        mmio_read_timeout_ms:2 driver_watchdog_timeout_ms:2 admin_completion_timeout_ms:2 poll_interval_ms:2
EventQueueAttr max_eq:4 max_eq_depth:4 event_bitmask:4
BasicStats     tx_bytes:8 tx_pkts:8 rx_bytes:8 rx_pkts:8 rx_drops:8 qkey_viol:8
MessagesStats  send_bytes:8 send_wrs:8 recv_bytes:8 recv_wrs:8
RdmaReadStats  read_wrs:8 read_bytes:8 read_wr_err:8 read_resp_bytes:8
RdmaWriteStats write_wrs:8 write_bytes:8 write_wr_err:8 write_recv_bytes:8
NetworkStats   retrans_bytes:8 retrans_pkts:8 retrans_timeout_events:8 unresponsive_remote_events:8
               impaired_remote_conn_events:8
"""


def offsets_in(table: str, module: ModuleType, *, header_bytes: int) -> dict[Any, dict[str, tuple[int, int]]]:
    """Return the offset and the size of each field, by class."""
    found: dict[Any, dict[str, tuple[int, int]]] = {}
    for line in table.replace("\n  ", "").strip().splitlines():
        name, *fields = line.split()
        at, of = header_bytes, found.setdefault(getattr(module, name), {})
        for field in fields:
            field_name, _, size = field.partition(":")
            if field_name != "-":
                of[field_name] = at, int(size)
            at += int(size)
    return found


COMMAND_OFFSETS = offsets_in(COMMANDS, commands, header_bytes=AQ_HEADER_BYTES)
REPLY_OFFSETS = offsets_in(REPLIES, replies, header_bytes=ACQ_HEADER_BYTES)
# Bits that the headers call reserved, besides whole bytes: a field, its bits that are defined.
DEFINED_BITS = {
    (commands.CreateQp, "flags"): 0x0F,
    (commands.ModifyQp, "modify_mask"): 0x3F,
    (commands.RegMr, "flags"): 0xBF,
    (commands.RegMr, "permissions"): 0x07,
    (commands.CreateCq, "caps_1"): 0x60,
    (commands.CreateCq, "caps_2"): 0x7F,
}
ANSWERED: dict[type[replies.Reply], commands.Command] = {
    **{command.REPLY: body_with(command, offsets, filled="") for command, offsets in COMMAND_OFFSETS.items()},
    **{reply: commands.GetFeature(feature_id=feature) for feature, reply in replies.FEATURES.items()},
    **{reply: commands.GetStats(stats_type=stats) for stats, reply in replies.STATS.items()},
}
"""A command that each reply answers."""


def filled_bytes(entry: bytes, *, header_bytes: int) -> list[int]:
    return [index for index in range(header_bytes, len(entry)) if entry[index]]


@st.composite
def bodies(draw: st.DrawFn, table: Any) -> Any:
    cls = draw(st.sampled_from(list(table)))
    values: dict[str, Any] = {}
    for name, (_, size) in table[cls].items():
        top = (1 << 8 * size) - 1
        whole: st.SearchStrategy[Any] = st.binary(min_size=size, max_size=size)
        number = st.one_of(st.just(top), st.integers(min_value=0, max_value=top))
        values[name] = draw(whole) if name in BYTES_FIELDS else draw(number) & DEFINED_BITS.get((cls, name), top)
    return cls(**values)


def command_ids() -> st.SearchStrategy[int]:
    return st.integers(min_value=0, max_value=admin.MAX_COMMAND_ID)


def test_every_opcode_has_a_command_and_a_reply() -> None:
    assert set(commands.COMMANDS) | admin.UNSUPPORTED == set(range(1, 21)) == set(AdminOpcode)
    assert set(commands.COMMANDS.values()) == set(COMMAND_OFFSETS)
    assert set(ANSWERED) == set(REPLY_OFFSETS)


def test_numbers_of_the_headers() -> None:
    assert [status.value for status in AdminStatus] == list(range(8))
    assert (Feature.DEVICE_ATTR, Feature.HOST_INFO, Feature.QUEUE_ATTR_2) == (1, 6, 8)
    assert (StatsType.BASIC, StatsType.NETWORK, enums.StatsScope.QUEUE) == (0, 4, 1)
    assert (enums.AenqGroup.FATAL_ERROR, enums.AenqGroup.KEEP_ALIVE) == (1, 4)
    assert (enums.QpState.RESET, enums.QpState.RTS, enums.QpState.ERR, enums.QpType.SRD) == (0, 3, 6, 2)
    assert (Access.LOCAL_WRITE, Access.REMOTE_WRITE, Access.REMOTE_READ) == (1, 2, 4)
    assert (enums.DeviceCap.RDMA_READ, enums.DeviceCap.RNR_RETRY, enums.DeviceCap.RDMA_WRITE) == (1, 2, 8)
    assert (enums.DeviceCap.UNSOLICITED_WRITE_RECV, enums.DeviceCap.SQ_64_BIT_REQ_ID) == (16, 1024)


@pytest.mark.parametrize("cls", COMMAND_OFFSETS, ids=name_of)
def test_command__field_offsets(cls: type[commands.Command]) -> None:
    offsets = COMMAND_OFFSETS[cls]
    assert [*offsets] == [field.name for field in dataclasses.fields(cls)]
    for name, (offset, size) in offsets.items():
        entry = admin.encode_command(body_with(cls, offsets, filled=name), command_id=0, phase=0)
        assert filled_bytes(entry, header_bytes=AQ_HEADER_BYTES) == list(range(offset, offset + size)), name


@pytest.mark.parametrize("cls", REPLY_OFFSETS, ids=name_of)
def test_reply__field_offsets(cls: type[replies.Reply]) -> None:
    offsets = REPLY_OFFSETS[cls]
    assert [*offsets] == [field.name for field in dataclasses.fields(cls)]
    for name, (offset, size) in offsets.items():
        entry = admin.encode_reply(body_with(cls, offsets, filled=name), command_id=0, phase=0)
        assert filled_bytes(entry, header_bytes=ACQ_HEADER_BYTES) == list(range(offset, offset + size)), name


def test_command__header() -> None:
    entry = admin.encode_command(commands.QueryQp(7), command_id=0x9AB, phase=1)
    assert entry == bytes([0xAB, 0x09, 3, 1, 7]) + bytes(59)


@given(command=bodies(COMMAND_OFFSETS), command_id=command_ids(), phase=st.integers(0, 1))
def test_command__round_trip(command: commands.Command, command_id: int, phase: int) -> None:
    entry = admin.encode_command(command, command_id=command_id, phase=phase)
    assert len(entry) == admin.ENTRY_BYTES
    assert admin.decode_command_untrusted(entry) == (command_id, phase, command)


@given(reply=bodies(REPLY_OFFSETS), command_id=command_ids(), phase=st.integers(0, 1))
def test_reply__round_trip(reply: replies.Reply, command_id: int, phase: int) -> None:
    entry = admin.encode_reply(reply, command_id=command_id, phase=phase)
    decoded = admin.decode_reply_untrusted(entry, ANSWERED[type(reply)])
    assert decoded == (command_id, phase, AdminStatus.SUCCESS, reply)


@pytest.mark.parametrize("status", [status for status in AdminStatus if status])
def test_reply__failure_has_no_body(status: AdminStatus) -> None:
    entry = admin.encode_reply(None, command_id=5, phase=1, status=status)
    assert entry == bytes([5, 0, status, 1]) + bytes(60)
    assert admin.decode_reply_untrusted(entry, ANSWERED[replies.CreateQpReply]) == (5, 1, status, None)


@given(data=st.binary(max_size=70) | st.binary(min_size=64, max_size=64))
@example(bytes(64))
@example(b"")
def test_command__random_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        command_id, phase, command = admin.decode_command_untrusted(data)
    except AdminError as error:
        known_id = int.from_bytes(data[:2], "little") & 0xFFF if len(data) >= AQ_HEADER_BYTES else None
        assert (error.status in {2, 3, 4}, error.command_id) == (True, known_id)  # noqa: PT017 - either may happen
    else:
        assert admin.encode_command(command, command_id=command_id, phase=phase) == data


@given(
    body=st.binary(min_size=60, max_size=60), opcode=st.sampled_from(list(commands.COMMANDS)), flags=st.integers(0, 1)
)
def test_command__random_bodies_are_decoded_or_refused(body: bytes, opcode: int, flags: int) -> None:
    data = bytes([1, 0, opcode, flags]) + body
    try:
        decoded = admin.decode_command_untrusted(data)
    except AdminError as error:
        assert (error.status, error.command_id) == (AdminStatus.MALFORMED_REQUEST, 1)  # noqa: PT017 - either may happen
    else:
        assert admin.encode_command(decoded.command, command_id=1, phase=flags) == data


@given(
    data=st.binary(max_size=70) | st.binary(min_size=64, max_size=64),
    command=st.sampled_from(list(ANSWERED.values())),
)
def test_reply__random_bytes_are_decoded_or_refused(data: bytes, command: commands.Command) -> None:
    try:
        admin.decode_reply_untrusted(data, command)
    except AbiError as error:
        assert error.field in {"entry", "status"}  # noqa: PT017 - either may happen


@pytest.mark.parametrize("opcode", [0, 21, 25, 255])
def test_command__unknown_opcode(opcode: int) -> None:
    with pytest.raises(AdminError, match=r"^opcode: ") as caught:
        admin.decode_command_untrusted(bytes([2, 0, opcode, 1]) + bytes(60))
    assert (caught.value.status, caught.value.command_id) == (AdminStatus.BAD_OPCODE, 2)


@pytest.mark.parametrize(
    ("offset", "value", "field"),
    [(1, 0x10, "command_id"), (3, 2, "flags"), (3, 4, "flags"), (3, 8, "flags"), (60, 1, "QueryQp")],
)
def test_command__reserved_parts(offset: int, value: int, field: str) -> None:
    entry = bytearray(admin.encode_command(commands.QueryQp(7), command_id=3, phase=0))
    entry[offset] |= value
    with pytest.raises(AdminError, match=rf"^{field}: ") as caught:
        admin.decode_command_untrusted(bytes(entry))
    assert (caught.value.status, caught.value.command_id) == (AdminStatus.MALFORMED_REQUEST, 3)


@pytest.mark.parametrize(("cls", "field"), DEFINED_BITS, ids=name_of)
def test_command__reserved_bits(cls: type[commands.Command], field: str) -> None:
    offsets = COMMAND_OFFSETS[cls]
    defined = DEFINED_BITS[cls, field]
    for bit in range(8 * offsets[field][1]):
        command = dataclasses.replace(body_with(cls, offsets, filled=""), **{field: 1 << bit})
        entry = admin.encode_command(command, command_id=0, phase=0)
        if defined >> bit & 1:
            assert admin.decode_command_untrusted(entry).command == command
        else:
            with pytest.raises(AdminError, match=f"^{field}: .* reserved bits") as caught:
                admin.decode_command_untrusted(entry)
            assert caught.value.status == AdminStatus.MALFORMED_REQUEST


@pytest.mark.parametrize(
    "command",
    [commands.QueryQp(1 << 32), commands.QueryQp(-1), commands.CreateAh(bytes(15), pd=0), commands.CreateAh(b"", pd=0)],
)
def test_command__value_that_does_not_fit(command: commands.Command) -> None:
    with pytest.raises(AbiError, match=type(command).__name__):
        admin.encode_command(command, command_id=0, phase=0)


def test_create_cq__caps() -> None:
    caps_1, caps_2 = commands.cq_caps(entry_bytes=32, interrupt_mode=True, set_src_addr=True)
    assert (caps_1, caps_2) == (0x20, 0x28)
    wide = commands.CreateCq(caps_1, caps_2, cq_depth=8)
    assert (wide.entry_bytes, wide.interrupt_mode, wide.set_src_addr) == (32, True, True)
    narrow = commands.CreateCq(*commands.cq_caps(entry_bytes=16), cq_depth=8)
    assert (narrow.entry_bytes, narrow.interrupt_mode, narrow.set_src_addr) == (16, False, False)


@pytest.mark.parametrize(
    "command", [commands.GetFeature(feature_id=Feature.HOST_INFO), commands.GetStats(stats_type=5)]
)
def test_reply__what_cannot_succeed(command: commands.Command) -> None:
    with pytest.raises(AbiError, match=r"^status: .* has succeeded"):
        admin.decode_reply_untrusted(bytes(64), command)


def test_reply__unknown_status() -> None:
    with pytest.raises(AbiError, match=r"^status: 8 is unknown"):
        admin.decode_reply_untrusted(bytes([0, 0, 8]) + bytes(61), commands.AllocPd())


def test_aenq__layout() -> None:
    event = admin.AenqEntry(0x0102, 0x0304, 0x1112131415161718, b"abc")
    entry = admin.encode_aenq(event, phase=1)
    assert entry[:4] == bytes([2, 1, 4, 3])
    assert entry[4:8] == bytes([1, 0, 0, 0])
    assert entry[8:16] == bytes([0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11])
    assert entry[AENQ_HEADER_BYTES:] == b"abc" + bytes(45)


@given(
    event=st.builds(
        admin.AenqEntry,
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.integers(0, (1 << 64) - 1),
        st.binary(min_size=48, max_size=48),
    ),
    phase=st.integers(0, 1),
)
def test_aenq__round_trip(event: admin.AenqEntry, phase: int) -> None:
    assert admin.decode_aenq_untrusted(admin.encode_aenq(event, phase=phase)) == (phase, event)


@given(data=st.binary(min_size=64, max_size=64))
def test_aenq__random_bytes_are_an_event(data: bytes) -> None:
    phase, _ = admin.decode_aenq_untrusted(data)
    assert phase == data[4] & 1


def test_aenq__refused() -> None:
    with pytest.raises(AbiError, match=r"^entry: "):
        admin.decode_aenq_untrusted(bytes(63))
    with pytest.raises(AbiError, match=r"^data: "):
        admin.encode_aenq(admin.AenqEntry(1, 0, 0, bytes(49)), phase=0)
    with pytest.raises(AbiError, match="AenqEntry"):
        admin.encode_aenq(admin.AenqEntry(1 << 16, 0, 0), phase=0)
