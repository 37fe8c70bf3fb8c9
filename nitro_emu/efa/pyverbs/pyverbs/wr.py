"""Work requests."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from nitro_emu.efa import verbs
from pyverbs.addr import AH
from pyverbs.base import PyverbsObject
from pyverbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from pyverbs.pyverbs_error import PyverbsUserError


class SGE(PyverbsObject):
    """A buffer."""

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        self.addr = addr
        self.length = length
        self.lkey = lkey

    def verbs(self) -> verbs.Sge:
        """Return it as the driver has it."""
        return verbs.Sge(self.addr, self.length, self.lkey)


class RecvWR(PyverbsObject):
    """A receive request."""

    def __init__(
        self, wr_id: int = 0, num_sge: int = 0, sg: Sequence[SGE] | None = None, next_wr: RecvWR | None = None
    ) -> None:
        self.wr_id = wr_id
        self.num_sge = num_sge
        self.sg = sg
        self.next_wr = next_wr

    def verbs(self) -> verbs.RecvRequest:
        """Return it as the driver has it."""
        return verbs.RecvRequest(self.wr_id, _sges(self.sg, count=self.num_sge))


class SendWR(PyverbsObject):
    """A send request. `imm_data` is in network order."""

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = ibv_wr_opcode.IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = ibv_send_flags.IBV_SEND_SIGNALED,
        next_wr: SendWR | None = None,
    ) -> None:
        self.wr_id = wr_id
        self.opcode = opcode
        self.num_sge = num_sge
        self.imm_data = imm_data
        self.sg = sg
        self.send_flags = send_flags
        self.next_wr = next_wr
        self._ah: AH | None = None
        self._remote = (0, 0)

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
