"""Changing the state of a queue pair: the table of SRD."""

from __future__ import annotations

import errno
from typing import Any, Final

import pytest

from nitro_emu.efa.abi import enums
from nitro_emu.efa.verbs import QpState, QueuePair
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import OPTIONS, Rig

RESET, INIT, RTR, RTS, SQD, ERR = (
    QpState.RESET,
    QpState.INIT,
    QpState.RTR,
    QpState.RTS,
    QpState.SQD,
    QpState.ERR,
)
TO_INIT: Final[dict[str, Any]] = {"qkey": 1, "pkey_index": 0, "port": 1}
WAY: Final[list[tuple[QpState, dict[str, Any]]]] = [
    (INIT, TO_INIT),
    (RTR, {}),
    (RTS, {"sq_psn": 5}),
    (SQD, {}),
]


def fresh(rig: Rig, state: QpState) -> QueuePair:
    """Return a queue pair in a state."""
    qp = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    if state is ERR:
        qp.modify(ERR)
    for after, given in WAY:
        if qp.state in {state, ERR}:
            break
        qp.modify(after, **given)
    assert qp.state is state
    return qp


def test_the_way_to_rts(rig: Rig) -> None:
    qp = fresh(rig, RESET)
    qp.to_rts(qkey=0xABCD, sq_psn=77, rnr_retry=3)
    commands = rig.card.qps[qp.handle].modified
    masks = [enums.ModifyMask(command.modify_mask) for command in commands]
    state = enums.ModifyMask.QP_STATE
    assert masks == [
        state | enums.ModifyMask.QKEY,
        state,
        state | enums.ModifyMask.SQ_PSN | enums.ModifyMask.RNR_RETRY,
    ]
    assert [command.qp_state for command in commands] == [INIT, RTR, RTS]
    assert (commands[0].qkey, commands[2].sq_psn, commands[2].rnr_retry) == (0xABCD, 77, 3)
    assert qp.query().qp_state == RTS


ALLOWED: Final[list[tuple[QpState, QpState, dict[str, Any]]]] = [
    (INIT, INIT, {"qkey": 2, "port": 1, "pkey_index": 0}),
    (INIT, RTR, {"qkey": 2, "pkey_index": 0}),
    (RTR, RTS, {"sq_psn": 1, "qkey": 2, "rnr_retry": 7, "current_state": RTR}),
    (RTS, RTS, {"qkey": 2}),
    (RTS, SQD, {"notify_drained": True}),
    (SQD, RTS, {"qkey": 2, "current_state": SQD}),
    (SQD, SQD, {"pkey_index": 0, "qkey": 2}),
    (RTS, RESET, {}),
    (ERR, RESET, {}),
    (INIT, ERR, {}),
    (SQD, ERR, {}),
]


@pytest.mark.parametrize(("before", "after", "given"), ALLOWED)
def test_changes(rig: Rig, before: QpState, after: QpState, given: dict[str, Any]) -> None:
    qp = fresh(rig, before)
    qp.modify(after, **given)
    assert qp.state is after


REFUSED: Final[list[tuple[QpState, QpState, dict[str, Any]]]] = [
    (RESET, RTR, {}),
    (RESET, RTS, {"sq_psn": 1}),
    (RESET, INIT, {"qkey": 1, "pkey_index": 0}),
    (RESET, INIT, {"qkey": 1, "port": 1}),
    (RESET, INIT, {"pkey_index": 0, "port": 1}),
    (RESET, INIT, {**TO_INIT, "port": 2}),
    (RESET, INIT, {**TO_INIT, "pkey_index": 1}),
    (RESET, INIT, {**TO_INIT, "sq_psn": 1}),
    (INIT, RTS, {"sq_psn": 1}),
    (INIT, RTR, {"port": 1}),
    (RTR, RTS, {}),
    (RTR, RTS, {"sq_psn": 1, "port": 1}),
    (RTS, INIT, TO_INIT),
    (RTS, RTS, {"sq_psn": 1}),
    (RTS, RTS, {"rnr_retry": 1}),
    (RTS, SQD, {"qkey": 1}),
    (RTS, ERR, {"qkey": 1}),
    (ERR, RTS, {"sq_psn": 1}),
    (ERR, INIT, TO_INIT),
]


@pytest.mark.parametrize(("before", "after", "given"), REFUSED)
def test_changes_that_do_not_exist(rig: Rig, before: QpState, after: QpState, given: dict[str, Any]) -> None:
    qp = fresh(rig, before)
    asked = len(rig.card.qps[qp.handle].modified)
    with pytest.raises(VerbsError) as raised:
        qp.modify(after, **given)
    assert raised.value.errno == errno.EINVAL
    assert len(rig.card.qps[qp.handle].modified) == asked
    assert qp.state is before


def test_an_attribute_without_a_change_of_state(rig: Rig) -> None:
    rig.qp.modify(qkey=9)
    command = rig.card_qp.modified[-1]
    assert (command.modify_mask, command.qkey) == (enums.ModifyMask.QKEY, 9)


def test_what_the_card_refuses_is_not_done(rig: Rig) -> None:
    rig.card.refuse[enums.AdminOpcode.MODIFY_QP] = enums.AdminStatus.ILLEGAL_PARAMETER
    with pytest.raises(VerbsError):
        rig.qp.modify(QpState.SQD)
    assert rig.qp.state is RTS
