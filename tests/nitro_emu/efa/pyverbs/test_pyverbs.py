"""What pyverbs adds to the driver: its names, signatures, byte orders and error numbers."""

from __future__ import annotations

import ctypes
import errno
import inspect
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyverbs import addr, cm_enums, cq, device, enums, mr, pd, qp, wr
from pyverbs import libibverbs_enums as e
from pyverbs.mem_alloc import madvise
from pyverbs.providers.efa import efa_enums, efadv
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError

from devmem.region import Region
from nitro_emu.efa.abi.enums import AdminOpcode, DeviceCap, Feature
from nitro_emu.efa.abi.io import SendOp
from tests.nitro_emu.efa.pyverbs.objects import QKEY, ah_attr, attr, cq_of, error_of, init_attr, qp_of
from tests.nitro_emu.efa.verbs.fake_card import GID as RAW_GID
from tests.nitro_emu.efa.verbs.fake_card import FakeCard

# -- devices --------------------------------------------------------------------------------------------------------


def test_devices(ctx: device.Context) -> None:
    assert [found.name for found in device.get_device_list()] == [b"efa_0"]
    attributes, port = ctx.query_device(), ctx.query_port(1)
    assert (attributes.vendor_id, attributes.max_qp_wr, attributes.max_sge) == (0x1D0F, 4096, 2)
    assert (port.state, port.gid_tbl_len, port.max_msg_sz, port.lmc) == (4, 1, 8900, 1)
    assert ctx.query_device_ex().odp_caps.general_caps == 0
    assert ctx.query_pkey(1, 0) == 0xFFFF
    assert ctx.query_gid(1, 0).gid == "fe80:4da3:0000:0000:0000:ffff:0a00:0101"
    assert ctx.query_gid_type(1, 0) == 0


@pytest.mark.usefixtures("card")
def test_unknown_devices() -> None:
    assert error_of(lambda: device.Context(name="efa_9")) == errno.ENODEV


@pytest.mark.usefixtures("card")
def test_what_an_efa_device_has() -> None:
    with efadv.EfaContext(name=b"efa_0") as ctx:
        attributes = ctx.query_efa_device()
    assert (attributes.max_sq_wr, attributes.max_rq_wr, attributes.inline_buf_size_ex) == (4096, 32768, 80)
    assert attributes.device_caps == 0b11111
    assert efadv.dev_cap_to_str(3) == "RDMA Read RNR Retry"


def test_a_device_without_writes(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    caps = int(DeviceCap.RDMA_READ)
    monkeypatch.setitem(card.features, Feature.DEVICE_ATTR, card.device_attr(device_caps=caps))
    with device.Context(name="efa_0") as ctx:
        domain, queue = pd.PD(ctx), cq.CQ(ctx, 8)
        for ops in (1, 2, 3):
            create = lambda ops=ops: efadv.SRDQPEx(  # noqa: E731
                ctx, init_attr(queue, domain, send_ops_flags=ops), efadv.EfaQPInitAttr()
            )
            assert error_of(create) == errno.EOPNOTSUPP
        efadv.SRDQPEx(ctx, init_attr(queue, domain, send_ops_flags=16), efadv.EfaQPInitAttr())
        unsolicited = efadv.EfaDVCQInitAttr(efa_enums.EFADV_WC_EX_WITH_IS_UNSOLICITED)
        assert error_of(lambda: efadv.EfaCQ(ctx, cq.CqInitAttrEx(), unsolicited)) == errno.EOPNOTSUPP


# -- addresses ------------------------------------------------------------------------------------------------------


def test_gids() -> None:
    text = "fe80:4da3:0000:0000:0000:ffff:0a00:0101"
    assert addr.GID(text).raw == RAW_GID
    assert str(addr.GID()) == ":".join(["0000"] * 8)
    for bad in ("", "fe80::1", "fe80:" * 8, text + "0", "xxxx" + text[4:]):
        with pytest.raises(PyverbsUserError):
            addr.GID(bad)


def test_address_handles(rig: SimpleNamespace) -> None:
    command = rig.card.of_kind(AdminOpcode.CREATE_AH)[-1]
    assert (command.dest_addr, command.pd) == (RAW_GID, rig.pd.pd.number)
    assert error_of(lambda: addr.AH(rig.pd, attr=addr.AHAttr())) == errno.EINVAL
    efa = efadv.EfaAH(rig.pd, attr=ah_attr())
    assert efa.query_efa_ah().ahn == efa.handle.number


# -- memory ---------------------------------------------------------------------------------------------------------


def test_memory(rig: SimpleNamespace) -> None:
    rig.mr.write("texts", 4, 10)
    assert rig.mr.read(6, 9) == b"\0text\0"
    assert ctypes.string_at(rig.mr.buf + 10, 4) == b"text"
    rig.mr.write(b"bytes", 5)
    assert rig.mr.read(5, 0) == b"bytes"
    outside: list[Callable[[], object]] = [
        lambda: rig.mr.read(1, 4096),
        lambda: rig.mr.write("xx", 2, 4095),
        lambda: rig.mr.read(1, -1),
    ]
    for bad in outside:
        with pytest.raises(PyverbsUserError):
            bad()
    rig.mr.close()
    with pytest.raises(PyverbsUserError):
        rig.mr.read(1, 0)


def test_memory_by_address(rig: SimpleNamespace) -> None:
    with Region(8192) as region:
        registered = mr.MR(rig.pd, 100, 1, address=region.address + 8)
        assert (registered.buf, registered.length) == (region.address + 8, 100)
        registered.write("here", 4)
        assert bytes(region.view(8, length=4)) == b"here"
        registered.close()
    assert error_of(lambda: mr.MR(rig.pd, 8, 1, address=id(rig))) == errno.EFAULT


def test_access_rights(rig: SimpleNamespace) -> None:
    flags = e.ibv_access_flags
    mr.MR(rig.pd, 8, flags.IBV_ACCESS_REMOTE_READ | flags.IBV_ACCESS_RELAXED_ORDERING)
    assert rig.card.registered[-1][0].permissions == 4
    assert error_of(lambda: mr.MR(rig.pd, 8, flags.IBV_ACCESS_REMOTE_ATOMIC)) == errno.EOPNOTSUPP
    assert error_of(lambda: mr.MR(rig.pd, 0, 0)) == errno.EINVAL
    with pytest.raises(PyverbsUserError):
        mr.MR(rig.pd, 8, 0, implicit=True)
    query = efadv.EfaMR(rig.pd, 16, 1).query()
    assert query.ic_id_validity & ~7 == 0


def test_madvise(rig: SimpleNamespace) -> None:
    rig.mr.write("data", 4)
    madvise(rig.mr.buf, 4096)
    assert rig.mr.read(4, 0) == b"data"  # shared memory keeps it
    with pytest.raises(PyverbsError):
        madvise(1 << 60, 10)


# -- queue pairs ----------------------------------------------------------------------------------------------------


def test_rounded_sizes(rig: SimpleNamespace) -> None:
    attributes, init = rig.qp.query(e.ibv_qp_attr_mask.IBV_QP_CAP)
    for cap in (attributes.cap, init.cap):
        assert (cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge) == (8, 8, 1, 1)
    assert attributes.qp_state == rig.qp.qp_state == e.ibv_qp_state.IBV_QPS_RTS


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"pd": None}, errno.EINVAL),
        ({"scq": None}, errno.EINVAL),
        ({"comp_mask": 64}, errno.EINVAL),
        ({"comp_mask": 1 | 4}, errno.EOPNOTSUPP),
        ({"comp_mask": 1 | 1024}, errno.EOPNOTSUPP),
        ({"send_ops_flags": 32}, errno.EOPNOTSUPP),
        ({"srq": object()}, errno.EOPNOTSUPP),
        ({"qp_type": e.ibv_qp_type.IBV_QPT_UD}, errno.EINVAL),
        ({"cap": qp.QPCap(max_send_wr=5000)}, errno.EINVAL),
    ],
)
def test_what_cannot_be_created(rig: SimpleNamespace, changes: dict[str, Any], number: int) -> None:
    attributes = init_attr(rig.cq, rig.pd, **changes)
    assert error_of(lambda: efadv.SRDQPEx(rig.ctx, attributes, efadv.EfaQPInitAttr())) == number


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [("driver_qp_type", 1, errno.EOPNOTSUPP), ("flags", 4, errno.EOPNOTSUPP), ("comp_mask", 1, errno.EINVAL)],
)
def test_what_efa_does_not_have(rig: SimpleNamespace, name: str, value: int, number: int) -> None:
    efa = efadv.EfaQPInitAttr()
    setattr(efa, name, value)
    assert error_of(lambda: efadv.SRDQPEx(rig.ctx, init_attr(rig.cq, rig.pd), efa)) == number


def test_other_queue_pairs_are_not_supported(rig: SimpleNamespace) -> None:
    attributes = qp.QPInitAttr(scq=rig.cq, rcq=rig.cq)
    assert error_of(lambda: qp.QP(rig.pd, attributes)) == errno.EOPNOTSUPP
    assert error_of(lambda: efadv.SRDQP(rig.pd, attributes)) == errno.EINVAL


def test_modify(rig: SimpleNamespace) -> None:
    masks = e.ibv_qp_attr_mask
    change = qp.QPAttr(qp_state=e.ibv_qp_state.IBV_QPS_RESET)
    for mask in (masks.IBV_QP_TIMEOUT, masks.IBV_QP_RATE_LIMIT, masks.IBV_QP_STATE | masks.IBV_QP_CAP, 1 << 30):
        assert error_of(lambda mask=mask: rig.qp.modify(change, mask)) == errno.EOPNOTSUPP  # type: ignore[misc]
    assert error_of(lambda: rig.qp.modify(change, masks.IBV_QP_SQ_PSN)) == errno.EINVAL
    rig.qp.modify(change, masks.IBV_QP_STATE)
    assert rig.qp.qp_state == e.ibv_qp_state.IBV_QPS_RESET
    to_rts = qp_of(rig).modified[:3]
    assert [command.qkey for command in to_rts] == [QKEY, 0, 0]
    assert to_rts[2].sq_psn == 9


# -- requests -------------------------------------------------------------------------------------------------------


def test_legacy_sends(rig: SimpleNamespace) -> None:
    sge = wr.SGE(rig.mr.buf, 10, rig.mr.lkey)
    last = wr.SendWR(wr_id=2, opcode=e.ibv_wr_opcode.IBV_WR_SEND_WITH_IMM, num_sge=1, sg=[sge])
    last.imm_data = socket.htonl(1234)
    first = wr.SendWR(wr_id=1, num_sge=1, sg=[sge], next_wr=last)
    for request in (first, last):
        request.set_wr_ud(rig.ah, 7, QKEY)
        request.set_wr_rdma(1, 2)
    rig.qp.post_send(first)
    one, two = rig.card.take_sends(qp_of(rig))
    assert (one.dest_qp_num, one.qkey, one.ah, one.has_imm) == (7, QKEY, rig.ah.handle.number, False)
    assert (two.has_imm, two.immediate) == (True, 1234)


def test_a_chain_has_one_doorbell(rig: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As libefa's post_send and post_recv have."""
    rung = []
    for queue in (rig.qp.qp.send_queue, rig.qp.qp.recv_queue):

        def ring(queue: Any = queue, before: Callable[[], None] = queue.ring) -> None:
            rung.append(queue)
            before()

        monkeypatch.setattr(queue, "ring", ring)
    sge = wr.SGE(rig.mr.buf, 10, rig.mr.lkey)
    sends, recvs = None, None
    for number in (3, 2, 1):
        sends = wr.SendWR(wr_id=number, num_sge=1, sg=[sge], next_wr=sends)
        sends.set_wr_ud(rig.ah, 7, QKEY)
        recvs = wr.RecvWR(wr_id=number, num_sge=1, sg=[sge], next_wr=recvs)
    rig.qp.post_send(sends)
    rig.qp.post_recv(recvs)
    assert rung == [rig.qp.qp.send_queue, rig.qp.qp.recv_queue]
    assert (len(rig.card.take_sends(qp_of(rig))), len(rig.card.take_recvs(qp_of(rig)))) == (3, 3)


def test_the_failing_request_is_copied(rig: SimpleNamespace) -> None:
    sge = wr.SGE(rig.mr.buf, 10, rig.mr.lkey)
    bad_send = wr.SendWR(wr_id=2, opcode=e.ibv_wr_opcode.IBV_WR_RDMA_READ, num_sge=1, sg=[sge])
    send = wr.SendWR(wr_id=1, num_sge=1, sg=[sge], next_wr=bad_send)
    for request in (send, bad_send):
        request.set_wr_ud(rig.ah, 7, QKEY)
    found = wr.SendWR()
    assert error_of(lambda: rig.qp.post_send(send, found)) == errno.EINVAL
    assert found.wr_id == 2
    recv = wr.RecvWR(wr_id=3, num_sge=1, sg=[sge], next_wr=wr.RecvWR(wr_id=4, num_sge=2, sg=[sge] * 2))
    missed = wr.RecvWR()
    assert error_of(lambda: rig.qp.post_recv(recv, missed)) == errno.EINVAL
    assert missed.wr_id == 4
    assert (len(rig.card.take_sends(qp_of(rig))), len(rig.card.take_recvs(qp_of(rig)))) == (1, 1)


def test_requests_that_pyverbs_refuses(rig: SimpleNamespace) -> None:
    with pytest.raises(PyverbsUserError, match="needs an AH"):
        rig.qp.post_send(wr.SendWR())
    with pytest.raises(PyverbsUserError, match="num_sge"):
        rig.qp.post_recv(wr.RecvWR(num_sge=1))


# -- completions ----------------------------------------------------------------------------------------------------


def recv(rig: SimpleNamespace, wr_id: int) -> int:
    rig.qp.post_recv(wr.RecvWR(wr_id, 1, [wr.SGE(rig.mr.buf, 10, rig.mr.lkey)]))
    req_id: int = rig.card.take_recvs(qp_of(rig))[0].req_id
    return req_id


def test_work_completions(rig: SimpleNamespace, ctx: device.Context) -> None:
    queue = cq.CQ(ctx, 100)
    assert (queue.comp_channel, queue.cqe, queue.poll()) == (None, 128, (0, []))
    rig.qp = efadv.SRDQPEx(ctx, init_attr(queue, rig.pd), efadv.EfaQPInitAttr())
    rig.cq = queue
    rig.qp.to_rts(attr())
    rig.card.complete_recv(cq_of(rig), qp_of(rig), recv(rig, 5), length=10, immediate=1234, ah=4)
    rig.card.complete_recv(cq_of(rig), qp_of(rig), recv(rig, 6), status=1)
    count, (one, two) = queue.poll(8)
    assert count == 2
    assert (one.wr_id, one.status, one.opcode, one.byte_len, one.slid, one.src_qp) == (5, 0, 128, 10, 4, 55)
    assert one.wc_flags & e.ibv_wc_flags.IBV_WC_WITH_IMM
    assert socket.ntohl(one.imm_data) == 1234
    assert (two.status, two.vendor_err) == (e.ibv_wc_status.IBV_WC_WR_FLUSH_ERR, 1)


def test_extended_completions(rig: SimpleNamespace) -> None:
    poll = cq.PollCqAttr()
    assert rig.cq.start_poll(poll) == errno.ENOENT
    rig.cq.end_poll()
    rig.card.complete_recv(cq_of(rig), qp_of(rig), recv(rig, 5), length=10, immediate=99, ah=0xFFFF, src_addr=RAW_GID)
    rig.card.complete_recv(
        cq_of(rig), qp_of(rig), 0, op=SendOp.RDMA_WRITE, immediate=98, unsolicited=True, ah=3, length=70000
    )
    rig.card.complete_recv(cq_of(rig), qp_of(rig), 0xFFFF)
    assert rig.cq.start_poll(poll) == 0
    assert (rig.cq.wr_id, rig.cq.status, rig.cq.read_opcode(), rig.cq.read_byte_len()) == (5, 0, 128, 10)
    assert socket.ntohl(rig.cq.read_imm_data()) == 99
    sgid = rig.cq.read_sgid()
    assert sgid is not None
    assert sgid.raw == RAW_GID
    assert not rig.cq.is_unsolicited()
    assert rig.cq.poll_next() == 0
    assert rig.cq.read_sgid() is None
    rig.cq.end_poll()
    assert (rig.cq.is_unsolicited(), rig.cq.read_byte_len(), rig.cq.wr_id) == (True, 70000, 0)
    assert (rig.cq.read_slid(), rig.cq.read_src_qp(), rig.cq.read_qp_num()) == (3, 55, rig.qp.qp_num)
    assert (rig.cq.read_wc_flags(), rig.cq.read_vendor_err()) == (e.ibv_wc_flags.IBV_WC_WITH_IMM, 0)
    assert (rig.cq.read_sl(), rig.cq.read_dlid_path_bits()) == (0, 0)
    assert rig.cq.start_poll(poll) == errno.EINVAL
    rig.cq.end_poll()
    poll.comp_mask = 1
    assert rig.cq.start_poll(poll) == errno.EINVAL


def test_events(card: FakeCard, ctx: device.Context) -> None:
    channel = cq.CompChannel(ctx)
    queue, other = (cq.CQ(ctx, 8, None, channel, 0) for _ in range(2))
    queue.req_notify()
    assert error_of(lambda: queue.req_notify(True)) == errno.EOPNOTSUPP  # noqa: FBT003
    card.fire(card.cqs[queue.cq.number])
    channel.get_cq_event(queue)
    queue.ack_events(1)
    card.fire(card.cqs[queue.cq.number])
    with pytest.raises(PyverbsRDMAError, match="unexpected CQ"):
        channel.get_cq_event(other)
    extended = cq.CQEX(ctx, cq.CqInitAttrEx(cqe=8, channel=channel))
    extended.req_notify()
    assert (extended.comp_channel, extended.cqe) == (channel, 8)


def test_queues_that_cannot_be_created(ctx: device.Context) -> None:
    assert error_of(lambda: cq.CQ(ctx, 0)) == errno.EINVAL
    assert error_of(lambda: cq.CQEX(ctx, cq.CqInitAttrEx(wc_flags=1 << 12))) == errno.EOPNOTSUPP
    assert error_of(lambda: cq.CQEX(ctx, cq.CqInitAttrEx(comp_mask=1))) == errno.EOPNOTSUPP
    assert error_of(lambda: efadv.EfaCQ(ctx, cq.CqInitAttrEx(), efadv.EfaDVCQInitAttr(8))) == errno.EOPNOTSUPP


# -- lifetime -------------------------------------------------------------------------------------------------------


def test_parents_close_their_children_first(rig: SimpleNamespace) -> None:
    rig.pd.close()
    done = [command.OPCODE for command in rig.card.commands]
    last = done.index(AdminOpcode.DEALLOC_PD)
    for opcode in (AdminOpcode.DESTROY_QP, AdminOpcode.DEREG_MR, AdminOpcode.DESTROY_AH):
        assert opcode in done[:last]
    rig.pd.close()
    rig.qp.close()


def test_closing_a_device_closes_all(rig: SimpleNamespace) -> None:
    rig.ctx.close()
    for each in (rig.qp, rig.mr, rig.ah, rig.cq, rig.pd):
        each.close()
    assert error_of(lambda: rig.qp.post_recv(wr.RecvWR())) == errno.EIO


# -- the module's shape ---------------------------------------------------------------------------------------------


def test_enumerations_are_flat_too() -> None:
    assert e.IBV_QPT_DRIVER is enums.IBV_QPT_DRIVER is e.ibv_qp_type.IBV_QPT_DRIVER
    assert "IBV_WC_SUCCESS" in dir(enums)
    assert enums.IBV_WC_STANDARD_FLAGS == 0x7F
    assert cm_enums.RDMA_PS_UDP == 273
    with pytest.raises(AttributeError):
        enums.IBV_NOTHING  # noqa: B018


def test_stand_ins() -> None:
    from pyverbs.providers.mlx5 import mlx5_enums, mlx5dv  # noqa: PLC0415
    from pyverbs.srq import SRQ  # noqa: PLC0415

    assert mlx5_enums.mlx5dv_dc_type.MLX5DV_DCTYPE_DCI == 0
    assert issubclass(mlx5dv.Mlx5Context, object)
    for absent in (SRQ, mr.MW, mr.MREx, mlx5dv.Mlx5QP):
        assert error_of(lambda absent=absent: absent(1)) == errno.EOPNOTSUPP  # type: ignore[misc]
    with pytest.raises(AttributeError):
        _ = mlx5dv.__wrapped__


SIGNATURES: Final = {
    device.Context: "(*, name)",
    addr.AHAttr: "(dlid, sl, src_path_bits, static_rate, is_global, port_num, gr)",
    addr.GlobalRoute: "(dgid, flow_label, sgid_index, hop_limit, traffic_class)",
    mr.MR: "(creator, length, access, address, implicit, **kwargs)",
    cq.CQ: "(context, cqe, cq_context, channel, comp_vector)",
    cq.CqInitAttrEx: "(cqe, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain)",
    qp.QPCap: "(max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data)",
    qp.QPInitAttr: "(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all)",
    qp.QPAttr: "(qp_state, cur_qp_state, port_num, path_mtu)",
    wr.SGE: "(addr, length, lkey)",
    wr.RecvWR: "(wr_id, num_sge, sg, next_wr)",
    wr.SendWR: "(wr_id, opcode, num_sge, imm_data, sg, send_flags, next_wr)",
}


@pytest.mark.parametrize("kind", SIGNATURES, ids=lambda kind: kind.__name__)
def test_signatures_are_pyverbs_own(kind: type) -> None:
    found = inspect.signature(kind)
    bare = [parameter.replace(default=inspect.Parameter.empty, annotation=inspect.Parameter.empty)
            for parameter in found.parameters.values()]  # fmt: skip
    assert str(inspect.Signature(bare)) == SIGNATURES[kind]
