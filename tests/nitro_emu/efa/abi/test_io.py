"""The data path's entries: offsets as in EFA's headers, round trips, and entries that no driver would write."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.io import CompStatus, RemoteMemory, SendDescriptor, SendOp, Sge
from nitro_emu.efa.verbs import COMPLETION
from nitro_emu.errors import AbiError

U8, U16, U24, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24, 32, 64))
MAX_INLINE = {64: 32, 128: 80}

# dtype: its size, and each field's offset and size, from struct efa_io_*.
DTYPES: list[tuple[np.dtype[np.void], int, dict[str, tuple[int, int]]]] = [
    (io.SGE_DTYPE, 16, {"length": (0, 4), "key": (4, 4), "address": (8, 8)}),
    (io.wqe_dtype(64), 64, {"req_id": (0, 2), "first": (32, 16), "second": (48, 16)}),
    (io.wqe_dtype(128), 128, {"req_id": (0, 2), "first": (32, 16), "second": (48, 16)}),
    (io.RX_DESC_DTYPE, 16, {"address": (0, 8), "req_id": (8, 2), "length": (10, 2), "lkey_ctrl": (12, 4)}),
    (
        COMPLETION,
        40,
        {
            "entry": (0, 32),
            "narrow_entry": (0, 16),
            "head": (0, 8),
            "req_id": (0, 2),
            "status": (2, 1),
            "flags": (3, 1),
            "qp_num": (4, 2),
            "length": (6, 2),
            "ah": (8, 2),
            "src_qp": (10, 2),
            "immediate": (12, 4),
            "length_hi": (16, 2),
            "src_gid": (16, 16),
            "wr_id": (32, 8),
        },
    ),
]


@st.composite
def descriptors(draw: st.DrawFn, *, wqe_bytes: int) -> SendDescriptor:
    op = draw(st.sampled_from(SendOp))
    may_inline = op is SendOp.SEND or (op is SendOp.RDMA_WRITE and wqe_bytes == 128)
    inline = may_inline and draw(st.booleans())
    most = 2 if op is SendOp.SEND else 1
    immediate = None if op is SendOp.RDMA_READ else draw(st.none() | U32)
    return SendDescriptor(
        op=op,
        req_id=draw(U16),
        phase=draw(st.integers(0, 1)),
        has_imm=immediate is not None,
        inline=inline,
        comp_req=draw(st.booleans()),
        dest_qp_num=draw(U16),
        ah=draw(U16),
        qkey=draw(U32),
        immediate=immediate or 0,
        sges=() if inline else tuple(draw(st.lists(st.builds(Sge, U64, U32, U24), max_size=most))),
        data=draw(st.binary(max_size=MAX_INLINE[wqe_bytes])) if inline else b"",
        remote=None if op is SendOp.SEND else draw(st.builds(RemoteMemory, U32, U64, U32)),
        hints=draw(st.integers(0, 3)),
    )


def packed(each: SendDescriptor, *, wqe_bytes: int = 64) -> bytes:
    return io.pack_wqe(
        each.op,
        req_id=each.req_id,
        phase=each.phase,
        dest_qp_num=each.dest_qp_num,
        ah=each.ah,
        qkey=each.qkey,
        sges=each.sges,
        data=each.data if each.inline else None,
        remote=each.remote,
        immediate=each.immediate if each.has_imm else None,
        hints=each.hints,
        comp_req=each.comp_req,
        wqe_bytes=wqe_bytes,
    )


def without_immediate(each: SendDescriptor) -> SendDescriptor:
    """The same, without an immediate that is not marked as valid."""
    return each if each.has_imm else each._replace(immediate=0)


def a_send(**changes: int) -> bytes:
    """Return a valid SEND of two buffers, with the bytes at `b<offset>` set."""
    wqe = bytearray(
        io.pack_wqe(req_id=1, phase=0, dest_qp_num=2, ah=3, qkey=4, sges=((0x1000, 100, 7), (0x2000, 50, 8)))
    )
    for name, value in changes.items():
        wqe[int(name[1:])] = value
    return bytes(wqe)


@pytest.mark.parametrize(("dtype", "size", "fields"), DTYPES)
def test_dtypes(dtype: np.dtype[np.void], size: int, fields: dict[str, tuple[int, int]]) -> None:
    assert dtype.itemsize == size
    assert dtype.fields is not None
    found = {name: (field[1], field[0].itemsize) for name, field in dtype.fields.items()}
    assert found == fields


def test_structs() -> None:
    assert (io.META.size, io.SGE.size, io.RX_DESC.size, io.CQE.size) == (32, 16, 16, 16)
    assert (io.META_BYTES, io.SGE_BYTES, io.RX_DESC_BYTES, io.CQE_BYTES, io.CQE_EX_BYTES) == (32, 16, 16, 16, 32)


def test_numbers_of_the_headers() -> None:
    assert [op.value for op in SendOp] == [0, 1, 2]
    assert [status.value for status in CompStatus] == [*range(16), 18]
    assert (CompStatus.LOCAL_ERROR_BAD_LENGTH, CompStatus.REMOTE_ERROR_RNR) == (6, 10)
    assert (io.QueueType.SEND, io.QueueType.RECV) == (1, 2)
    assert (io.HAS_IMM, io.INLINE_MSG, io.META_EXTENSION, io.META_DESC) == (0x10, 0x20, 0x40, 0x80)
    assert (io.WQE_PHASE, io.FIRST, io.LAST, io.COMP_REQ) == (1, 4, 8, 16)
    assert (io.CQE_PHASE, io.CQE_QUEUE_MASK, io.CQE_HAS_IMM, io.CQE_OP_MASK, io.CQE_UNSOLICITED) == (1, 6, 8, 112, 128)


def test_send__bytes() -> None:
    wqe = io.pack_wqe(
        req_id=0x0102, phase=1, dest_qp_num=0x0304, ah=0x0506, qkey=0x11111111, sges=((0xA0B0, 9, 7),), immediate=0x1234
    )
    assert wqe[:8] == bytes([2, 1, 0x90, 0x1D, 4, 3, 1, 0])
    assert wqe[8:20] == bytes([0x34, 0x12, 0, 0, 6, 5, 0, 0, 0x11, 0x11, 0x11, 0x11])
    assert wqe[32:48] == bytes([9, 0, 0, 0, 7, 0, 0, 0, 0xB0, 0xA0, 0, 0, 0, 0, 0, 0])
    assert not any(wqe[48:])


def test_rdma__bytes() -> None:
    wqe = io.pack_wqe(
        SendOp.RDMA_WRITE,
        req_id=1,
        phase=0,
        dest_qp_num=2,
        ah=3,
        qkey=4,
        remote=RemoteMemory(0xABCDEF01, 0x1000, 7),
        data=b"inlined",
        comp_req=False,
        wqe_bytes=128,
    )
    assert wqe[2:4] == bytes([0xA2, 0x0C])
    assert wqe[6] == len(b"inlined")
    assert wqe[32:48] == bytes([7, 0, 0, 0, 0x01, 0xEF, 0xCD, 0xAB, 0, 0x10, 0, 0, 0, 0, 0, 0])
    assert wqe[48:] == b"inlined".ljust(80, b"\0")
    read = io.pack_wqe(
        SendOp.RDMA_READ,
        req_id=1,
        phase=0,
        dest_qp_num=2,
        ah=3,
        qkey=4,
        remote=RemoteMemory(1, 2, 3),
        sges=((4, 5, 6),),
    )
    assert io.unpack_wqe_untrusted(read).sges == ((4, 5, 6),)
    assert io.unpack_wqe_untrusted(read).remote == (1, 2, 3)


@given(data=st.data(), wqe_bytes=st.sampled_from([64, 128]))
def test_wqe__round_trip(data: st.DataObject, wqe_bytes: int) -> None:
    descriptor = data.draw(descriptors(wqe_bytes=wqe_bytes))
    wqe = packed(descriptor, wqe_bytes=wqe_bytes)
    assert len(wqe) == wqe_bytes
    assert io.unpack_wqe_untrusted(wqe) == descriptor
    assert io.req_id_of(wqe) == descriptor.req_id


@given(data=st.binary(max_size=130) | st.binary(min_size=64, max_size=64) | st.binary(min_size=128, max_size=128))
@example(bytes(64))
@example(b"\xff" * 128)
def test_wqe__random_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        descriptor = io.unpack_wqe_untrusted(data)
    except AbiError as error:
        assert str(error).splitlines()[0].startswith(f"{error.field}: ")  # noqa: PT017 - either may happen
    else:
        again = packed(descriptor, wqe_bytes=len(data))
        assert io.unpack_wqe_untrusted(again) == without_immediate(descriptor)


@given(
    ctrl1=U8.map(lambda value: value & 0x33 | 0x80),
    ctrl2=U8.map(lambda value: value & 0x11 | 0x0C),
    length=st.integers(0, 81),
    rest=st.binary(min_size=120, max_size=120),
    wqe_bytes=st.sampled_from([64, 128]),
)
def test_wqe__random_bytes_behind_valid_control_bytes(
    ctrl1: int, ctrl2: int, length: int, rest: bytes, wqe_bytes: int
) -> None:
    wqe = (bytes([0, 0, ctrl1, ctrl2, 0, 0, length, 0]) + rest)[:wqe_bytes]
    try:
        descriptor = io.unpack_wqe_untrusted(wqe)
    except AbiError as error:
        assert error.field in {"op", "ctrl3", "inline", "has_imm", "length", "lkey"}  # noqa: PT017 - either may happen
    else:
        assert (len(descriptor.data) if descriptor.inline else len(descriptor.sges)) == length


@pytest.mark.parametrize(
    ("wqe", "field"),
    [
        (a_send(b2=0x00), "ctrl1"),  # not a metadata descriptor
        (a_send(b2=0xC0), "ctrl1"),  # extended
        (a_send(b3=0x18), "ctrl2"),  # not first
        (a_send(b3=0x14), "ctrl2"),  # not last
        (a_send(b3=0x1E), "ctrl2"),
        (a_send(b3=0x3C), "ctrl2"),
        (a_send(b3=0x5C), "ctrl2"),
        (a_send(b3=0x9C), "ctrl2"),
        (a_send(b14=0x04), "ctrl3"),
        (a_send(b2=0x83), "op"),
        (a_send(b2=0x8F), "op"),
        (a_send(b2=0xA1), "inline"),  # RDMA READ
        (a_send(b2=0x91), "has_imm"),  # RDMA READ
        (a_send(b2=0xA2), "inline"),  # RDMA WRITE in 64 bytes
        (a_send(b6=3), "length"),
        (a_send(b2=0x81), "length"),  # RDMA READ into two buffers
        (a_send(b2=0xA0, b6=33), "length"),
        (a_send(b2=0xA0, b6=81) + bytes(64), "length"),
        (a_send(b2=0xA2, b6=81) + bytes(64), "length"),
        (a_send(b39=1), "lkey"),
        (a_send(b55=1), "lkey"),
        (a_send()[:63], "entry"),
        (b"", "entry"),
    ],
)
def test_wqe__refused(wqe: bytes, field: str) -> None:
    with pytest.raises(AbiError, match=f"^{field}: ") as caught:
        io.unpack_wqe_untrusted(wqe)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("wqe", "wqe_bytes"), [(a_send(b2=0xA0, b6=32), 64), (a_send(b2=0xA0, b6=80), 128), (a_send(b2=0xA2, b6=80), 128)]
)
def test_wqe__most_inline_data(wqe: bytes, wqe_bytes: int) -> None:
    descriptor = io.unpack_wqe_untrusted(wqe.ljust(wqe_bytes, b"\x05"))
    assert len(descriptor.data) == wqe[6]


@pytest.mark.parametrize("sges", [(), ((0, 0, 0),), ((1, 0, 2), (3, 0, 4))])
def test_wqe__empty_messages(sges: tuple[tuple[int, int, int], ...]) -> None:
    wqe = io.pack_wqe(req_id=0, phase=0, dest_qp_num=0, ah=0, qkey=0, sges=sges)
    assert io.unpack_wqe_untrusted(wqe).sges == sges
    empty = io.pack_wqe(req_id=0, phase=0, dest_qp_num=0, ah=0, qkey=0, data=b"")
    assert io.unpack_wqe_untrusted(empty).inline


def test_pack__keys_are_cut() -> None:
    wqe = io.pack_wqe(req_id=0, phase=0, dest_qp_num=0, ah=0, qkey=0, sges=((0, 0, 0xFF000001),))
    assert io.unpack_wqe_untrusted(wqe).sges[0].lkey == 1


def test_pack__value_that_does_not_fit() -> None:
    ok = io.unpack_wqe_untrusted(a_send())
    with pytest.raises(AbiError, match="send request 1"):
        packed(ok._replace(qkey=1 << 32))
    with pytest.raises(AbiError, match=r"^length: "):
        packed(ok._replace(inline=True, data=bytes(33)))
    with pytest.raises(AbiError, match=r"^length: "):
        io.pack_wqe(req_id=1, phase=0, dest_qp_num=0, ah=0, qkey=0, sges=((0, 0, 0),) * 3)
    with pytest.raises(AbiError, match="receive request 1"):
        io.pack_rx(req_id=1, address=0, length=1 << 16, lkey=0)


def test_rx__bytes() -> None:
    assert io.pack_rx(req_id=0x0102, address=0xA0B0, length=0x0304, lkey=5) == bytes(
        [0xB0, 0xA0, 0, 0, 0, 0, 0, 0, 2, 1, 4, 3, 5, 0, 0, 0xC0]
    )
