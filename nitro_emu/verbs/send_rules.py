"""When a send request may be posted: the checks of rdma-core's EFA provider, with its error numbers."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from nitro_emu.abi.admin_enums import QpState
from nitro_emu.errors import VerbsError
from nitro_emu.verbs.enums import SendFlags, SendOps
from nitro_emu.verbs.link import Link

_SENDING = frozenset({QpState.RTS, QpState.SQD})
_PLAIN = int(SendFlags.SIGNALED)
_FLAGS = int(SendFlags.SIGNALED | SendFlags.INLINE)


@dataclass(slots=True)
class SendRules:
    """The state of a queue pair as far as it decides this. Shared by its ways of posting."""

    link: Link
    signal_all: bool
    ops: SendOps
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
