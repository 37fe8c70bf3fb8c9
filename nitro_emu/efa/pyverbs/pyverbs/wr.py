"""Work requests."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from nitro_emu.efa import verbs
from pyverbs.addr import AH
from pyverbs.base import PyverbsObject
from pyverbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from pyverbs.pyverbs_error import PyverbsUserError


@dataclass(eq=False)
class SGE(PyverbsObject):
    """A buffer."""

    addr: int
    length: int
    lkey: int

    def verbs(self) -> verbs.Sge:
        """Return it as the driver has it."""
        return verbs.Sge(self.addr, self.length, self.lkey)


@dataclass(eq=False)
class RecvWR(PyverbsObject):
    """A receive request."""

    wr_id: int = 0
    num_sge: int = 0
    sg: Sequence[SGE] | None = None
    next_wr: RecvWR | None = None

    def verbs(self) -> verbs.RecvRequest:
        """Return it as the driver has it."""
        return verbs.RecvRequest(self.wr_id, _sges(self.sg, count=self.num_sge))


@dataclass(eq=False)
class SendWR(PyverbsObject):
    """A send request. `imm_data` is in network order."""

    wr_id: int = 0
    opcode: int = ibv_wr_opcode.IBV_WR_SEND
    num_sge: int = 0
    imm_data: int = 0
    sg: Sequence[SGE] | None = None
    send_flags: int = ibv_send_flags.IBV_SEND_SIGNALED
    next_wr: SendWR | None = None
    _ah: AH | None = field(default=None, init=False, repr=False)
    _remote: tuple[int, int] = field(default=(0, 0), init=False, repr=False)

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Set where it goes."""
        self._ah, self._remote = ah, (rqpn, rqkey)

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Set the remote memory of a READ or a WRITE, which `post_send` of an EFA device does not know."""

    def verbs(self) -> verbs.SendRequest:
        """Return it as the driver has it."""
        if self._ah is None:
            raise PyverbsUserError("A send request needs an AH; call set_wr_ud")
        return verbs.SendRequest(
            ah=self._ah.handle,
            remote_qpn=self._remote[0],
            remote_qkey=self._remote[1],
            wr_id=self.wr_id,
            sges=_sges(self.sg, count=self.num_sge),
            opcode=int(self.opcode),  # type: ignore[arg-type]  # the driver judges an unknown one
            flags=int(self.send_flags),  # type: ignore[arg-type]  # likewise
            immediate=socket.ntohl(self.imm_data),
        )


def _sges(sg: Sequence[SGE] | None, *, count: int) -> tuple[verbs.Sge, ...]:
    if count > len(sg or ()):
        raise PyverbsUserError(f"num_sge is {count}, but there are {len(sg or ())} SGEs")
    return tuple(sge.verbs() for sge in (sg or ())[:count])
