"""pyverbs' objects of a fake card's device, and what the card has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyverbs import addr, cq, device, mr, pd, qp
from pyverbs import libibverbs_enums as e
from pyverbs.providers.efa import efa_enums, efadv
from pyverbs.pyverbs_error import PyverbsRDMAError

from tests.nitro_emu.efa.verbs.fake_card import GID as RAW_GID
from tests.nitro_emu.efa.verbs.fake_card import CardCq, CardQp, FakeCard

QKEY: Final = 0x11111111
ALL_OPS: Final = 31


def attr() -> qp.QPAttr:
    attr = qp.QPAttr(port_num=1)
    attr.qkey, attr.pkey_index, attr.sq_psn = QKEY, 0, 9
    return attr


def ah_attr() -> addr.AHAttr:
    return addr.AHAttr(gr=addr.GlobalRoute(dgid=addr.GID.of(RAW_GID)), is_global=1)


def init_attr(queue: Any, domain: Any, **changes: Any) -> qp.QPInitAttrEx:
    given: dict[str, Any] = {
        "qp_type": e.ibv_qp_type.IBV_QPT_DRIVER,
        "scq": queue,
        "rcq": queue,
        "cap": qp.QPCap(max_send_wr=5, max_recv_wr=5, max_inline_data=32),
        "comp_mask": e.ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD
        | e.ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        "pd": domain,
        "send_ops_flags": ALL_OPS,
    }
    return qp.QPInitAttrEx(**{**given, **changes})


def cq_of(rig: SimpleNamespace) -> CardCq:
    found: CardCq = rig.card.cqs[rig.cq.cq.number]
    return found


def qp_of(rig: SimpleNamespace) -> CardQp:
    found: CardQp = rig.card.qps[rig.qp.qp.handle]
    return found


def error_of(call: Callable[[], object]) -> int:
    with pytest.raises(PyverbsRDMAError) as raised:
        call()
    return raised.value.error_code


@pytest.fixture
def ctx(card: FakeCard) -> Iterator[device.Context]:  # noqa: ARG001 - it must run
    with device.Context(name="efa_0") as ctx:
        yield ctx


@pytest.fixture
def rig(card: FakeCard, ctx: device.Context) -> SimpleNamespace:
    """One of everything, the queue pair in state RTS."""
    domain = pd.PD(ctx)
    queue = efadv.EfaCQ(ctx, cq.CqInitAttrEx(), efadv.EfaDVCQInitAttr(efa_enums.EFADV_WC_EX_WITH_SGID))
    pair = efadv.SRDQPEx(ctx, init_attr(queue, domain), efadv.EfaQPInitAttr())
    pair.to_rts(attr())
    return SimpleNamespace(
        card=card,
        ctx=ctx,
        pd=domain,
        cq=queue,
        qp=pair,
        mr=mr.MR(domain, 4096, e.ibv_access_flags.IBV_ACCESS_LOCAL_WRITE),
        ah=addr.AH(domain, attr=ah_attr()),
    )
