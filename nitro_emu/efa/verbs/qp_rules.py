"""When a send request may be posted, and which changes of a queue pair's state exist.

The checks of rdma-core's EFA provider, with its error numbers, and SRD's table of changes: what has to be and may be
set along with them.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from nitro_emu.efa.abi.enums import NEXT_STATES, ModifyMask, QpState
from nitro_emu.efa.verbs.link import CardConnection
from nitro_emu.efa.verbs.wr import SendFlags
from nitro_emu.errors import VerbsError

_SENDING = frozenset({QpState.RTS, QpState.SQD})
_PLAIN = int(SendFlags.SIGNALED)
_FLAGS = int(SendFlags.SIGNALED | SendFlags.INLINE)


@dataclass(slots=True)
class SendRules:
    """The state of a queue pair as far as it decides this. Shared by its ways of posting."""

    link: CardConnection
    signal_all: bool
    state: QpState = QpState.RESET
    closed: bool = False

    def check(self, flags: int) -> None:
        """Raise VerbsError if no request with these flags may be posted now."""
        if flags == _PLAIN and self.state in _SENDING and not self.closed and not self.link.end_reason:
            return  # as nearly always
        self.check_open()
        if self.state not in _SENDING:
            raise VerbsError(errno.EINVAL, f"the queue pair is in state {self.state.name}; sending needs RTS")
        if not flags & SendFlags.SIGNALED and not self.signal_all:
            raise VerbsError(errno.EINVAL, "a request must be signaled: SRD needs its completion")
        if flags & ~_FLAGS:
            raise VerbsError(errno.EINVAL, f"flags {flags:#x} are more than SIGNALED and INLINE")

    def check_open(self) -> None:
        """Raise VerbsError if the card is dead (EIO), or the queue pair closed (EINVAL)."""
        self.link.check()
        if self.closed:
            raise VerbsError(errno.EINVAL, "the queue pair is closed")


_NONE: Final = ModifyMask(0)
_STATES: Final = ModifyMask.QP_STATE | ModifyMask.CUR_QP_STATE
_QKEY: Final = ModifyMask.QKEY

_CHANGES: Final = {
    (QpState.RESET, QpState.INIT): (_QKEY, _QKEY),
    (QpState.RTR, QpState.RTS): (ModifyMask.SQ_PSN, ModifyMask.SQ_PSN | _QKEY | ModifyMask.RNR_RETRY),
    (QpState.RTS, QpState.SQD): (_NONE, ModifyMask.SQ_DRAINED_ASYNC_NOTIFY),
}
"""(from, to): (what must be set, what may be); in others nothing must, and the qkey may."""
_WITH_PORT: Final = {(QpState.RESET, QpState.INIT): True, (QpState.INIT, QpState.INIT): False}
_WITH_PKEY: Final = {**_WITH_PORT, (QpState.INIT, QpState.RTR): False, (QpState.SQD, QpState.SQD): False}
"""(from, to): whether port or P_Key index must be set; they may not be elsewhere."""


def check_transition(
    before: QpState, after: QpState, *, given: ModifyMask, pkey_index: int | None, port: int | None
) -> None:
    """Raise VerbsError (EINVAL) for a change that does not exist, or with too little or too much along with it."""
    change = (before, after)
    if after not in NEXT_STATES[before]:
        raise VerbsError(errno.EINVAL, f"a queue pair does not go from {before.name} to {after.name}")
    needed, allowed = (_NONE, _NONE) if after in {QpState.RESET, QpState.ERR} else _CHANGES.get(change, (_NONE, _QKEY))
    if needed & ~given:
        raise VerbsError(errno.EINVAL, f"{before.name} to {after.name} needs {(needed & ~given)!r}")
    if given & ~(allowed | _STATES):
        raise VerbsError(errno.EINVAL, f"{before.name} to {after.name} does not set {(given & ~(allowed | _STATES))!r}")
    _check_constant("pkey_index", pkey_index, only=0, needed=_WITH_PKEY.get(change))
    _check_constant("port", port, only=1, needed=_WITH_PORT.get(change))


def _check_constant(name: str, value: int | None, *, only: int, needed: bool | None) -> None:
    if value is None and needed:
        raise VerbsError(errno.EINVAL, f"{name} is missing")
    if value is not None and (needed is None or value != only):
        raise VerbsError(errno.EINVAL, f"{name}: {value} cannot be set here; there is only {only}")
