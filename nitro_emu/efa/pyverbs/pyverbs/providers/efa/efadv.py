"""EFA's direct verbs: the queue pairs, completion queues and attributes that only an EFA device has."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from nitro_emu.efa import verbs
from nitro_emu.efa.abi.enums import DeviceCap
from pyverbs.addr import AH, GID
from pyverbs.base import PyverbsObject
from pyverbs.cq import CQEX, CqInitAttrEx
from pyverbs.device import Context
from pyverbs.libibverbs_enums import ibv_qp_init_attr_mask, ibv_qp_type
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.providers.efa import efa_enums
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPEx, QPInitAttr, QPInitAttrEx

_CAPS: Final = {
    efa_enums.EFADV_DEVICE_ATTR_CAPS_RDMA_READ: ("RDMA Read", DeviceCap.RDMA_READ),
    efa_enums.EFADV_DEVICE_ATTR_CAPS_RNR_RETRY: ("RNR Retry", DeviceCap.RNR_RETRY),
    efa_enums.EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID: ("CQ entries with source GID", DeviceCap(0)),
    efa_enums.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE: ("RDMA Write", DeviceCap.RDMA_WRITE),
    efa_enums.EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV: (
        "Unsolicited RDMA Write receive",
        DeviceCap.UNSOLICITED_WRITE_RECV,
    ),
}
"""Name, and what the card must have; the driver alone provides the one without."""
_QP_MASKS: Final = int(
    ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD | ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
)
_QP_FLAGS: Final = efa_enums.EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV | efa_enums.EFADV_QP_FLAGS_INLINE_WRITE
_WC_FLAGS: Final = efa_enums.EFADV_WC_EX_WITH_SGID | efa_enums.EFADV_WC_EX_WITH_IS_UNSOLICITED


def dev_cap_to_str(flags: int) -> str:
    """Return the names of capabilities."""
    return " ".join(name for bit, (name, _) in _CAPS.items() if flags & bit)


def _caps_of(context: Context) -> int:
    has = context.context.attributes.caps
    return sum(bit for bit, (_, needed) in _CAPS.items() if needed in has)


@dataclass(frozen=True, slots=True)
class EfaDVDeviceAttr:
    """Limits of an EFA device."""

    comp_mask: int
    max_sq_wr: int
    max_rq_wr: int
    max_sq_sge: int
    max_rq_sge: int
    inline_buf_size: int
    inline_buf_size_ex: int
    device_caps: int
    max_rdma_size: int


@dataclass(frozen=True, slots=True)
class EfaDVAHAttr:
    """An address handle's number."""

    comp_mask: int
    ahn: int


@dataclass(frozen=True, slots=True)
class EfaDVMRAttr:
    """The interconnects by which a device reaches registered memory."""

    comp_mask: int
    ic_id_validity: int
    recv_ic_id: int
    rdma_read_ic_id: int
    rdma_recv_ic_id: int


class EfaContext(Context):
    """An open EFA device."""

    def __init__(self, name: str | bytes = "") -> None:
        super().__init__(name=name)

    def query_efa_device(self) -> EfaDVDeviceAttr:
        """Return its limits."""
        attributes = self.context.attributes
        queue = attributes.queue
        return EfaDVDeviceAttr(
            comp_mask=0,
            max_sq_wr=queue.max_sq_depth,
            max_rq_wr=queue.max_rq_depth,
            max_sq_sge=queue.max_wr_send_sges,
            max_rq_sge=queue.max_wr_recv_sges,
            inline_buf_size=queue.inline_buf_size,
            inline_buf_size_ex=attributes.wide_inline_bytes,
            device_caps=_caps_of(self),
            max_rdma_size=attributes.max_rdma_bytes,
        )


class EfaAH(AH):
    """An address handle."""

    def query_efa_ah(self) -> EfaDVAHAttr:
        """Return its number."""
        return EfaDVAHAttr(comp_mask=0, ahn=self.handle.number)


class EfaQPInitAttr(PyverbsObject):
    """What a queue pair of SRD is created from, besides what all are."""

    def __init__(self) -> None:
        self.comp_mask = 0
        self.driver_qp_type = efa_enums.EFADV_QP_DRIVER_TYPE_SRD
        self.flags = 0
        self.sl = 0


class SRDQP(QP):
    """A queue pair of SRD, without the builder."""

    def __init__(self, pd: PD, init_attr: QPInitAttr) -> None:
        if init_attr.qp_type != ibv_qp_type.IBV_QPT_DRIVER:
            raise PyverbsRDMAError("Failed to create SRD QP: qp_type must be IBV_QPT_DRIVER", errno.EINVAL)
        self._create(pd, init_attr, send_ops=0, unsolicited=False, inline=False)


class SRDQPEx(QPEx):
    """A queue pair of SRD, with the builder."""

    def __init__(self, ctx: Context, attr_ex: QPInitAttrEx, efa_init_attr: EfaQPInitAttr) -> None:
        if attr_ex.qp_type != ibv_qp_type.IBV_QPT_DRIVER or efa_init_attr.comp_mask:
            raise PyverbsRDMAError("Failed to create SRD QPEx: qp_type must be IBV_QPT_DRIVER", errno.EINVAL)
        unknown = attr_ex.comp_mask & ~_QP_MASKS or efa_init_attr.flags & ~_QP_FLAGS
        if unknown or efa_init_attr.driver_qp_type != efa_enums.EFADV_QP_DRIVER_TYPE_SRD:
            raise PyverbsRDMAError("Failed to create SRD QPEx: an attribute is unknown", errno.EOPNOTSUPP)
        send_ops = int(attr_ex.send_ops_flags) if attr_ex.comp_mask & _SEND_OPS else 0
        unsolicited = bool(efa_init_attr.flags & efa_enums.EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV)
        _check_ops(send_ops, unsolicited=unsolicited, caps=ctx.context.attributes.caps)
        self._create(
            attr_ex.pd if attr_ex.comp_mask & ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD else None,
            attr_ex,
            send_ops=send_ops,
            unsolicited=unsolicited,
            inline=bool(efa_init_attr.flags & efa_enums.EFADV_QP_FLAGS_INLINE_WRITE),
        )

    def wr_set_processing_hints(self, hints: int) -> None:
        """Set the request's hints for the device."""
        if (draft := self._current()) is not None:
            draft.hints = hints


_SEND_OPS: Final = ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
_ALL_OPS: Final = sum(verbs.SendOps)
_WRITES: Final = verbs.SendOps.RDMA_WRITE | verbs.SendOps.RDMA_WRITE_WITH_IMM


def _check_ops(send_ops: int, *, unsolicited: bool, caps: DeviceCap) -> None:
    """Raise PyverbsRDMAError for an operation that the device does not have."""
    missing = send_ops & ~_ALL_OPS
    missing |= 0 if DeviceCap.RDMA_READ in caps else send_ops & verbs.SendOps.RDMA_READ
    missing |= 0 if DeviceCap.RDMA_WRITE in caps else send_ops & _WRITES
    if missing or (unsolicited and DeviceCap.UNSOLICITED_WRITE_RECV not in caps):
        raise PyverbsRDMAError("Failed to create SRD QPEx: the device lacks an operation", errno.EOPNOTSUPP)


class EfaDVCQInitAttr(PyverbsObject):
    """What an EFA completion queue is created from, besides what all are."""

    def __init__(self, wc_flags: int = 0) -> None:
        self.comp_mask = 0
        self.wc_flags = wc_flags


class EfaCQ(CQEX):
    """A completion queue that also tells the sender's GID, and which writes were unsolicited."""

    def __init__(self, ctx: Context, attr_ex: CqInitAttrEx, efa_init_attr: EfaDVCQInitAttr) -> None:
        flags = int(efa_init_attr.wc_flags or 0)
        needs = efa_enums.EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV
        lacks = flags & efa_enums.EFADV_WC_EX_WITH_IS_UNSOLICITED and not _caps_of(ctx) & needs
        if flags & ~_WC_FLAGS or efa_init_attr.comp_mask or lacks:
            raise PyverbsRDMAError("Failed to create EFA CQ: an attribute is unknown", errno.EOPNOTSUPP)
        self.with_source_gid = bool(flags & efa_enums.EFADV_WC_EX_WITH_SGID)
        super().__init__(ctx, attr_ex)

    def read_sgid(self) -> GID | None:
        """Return the GID of a sender that the protection domain has no address handle for; else None."""
        raw = self.current.src_gid
        return GID.of(raw) if raw else None

    def is_unsolicited(self) -> bool:
        """Return whether a write with an immediate consumed no receive request."""
        return self.current.unsolicited


class EfaMR(MR):
    """Registered memory."""

    def query(self) -> EfaDVMRAttr:
        """Return the interconnects by which the device reaches it."""
        reply = self.mr.interconnects
        return EfaDVMRAttr(
            comp_mask=0,
            ic_id_validity=reply.validity,
            recv_ic_id=reply.recv_ic_id,
            rdma_read_ic_id=reply.rdma_read_ic_id,
            rdma_recv_ic_id=reply.rdma_recv_ic_id,
        )
