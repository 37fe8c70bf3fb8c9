"""Completions as one array, for programs that handle many at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.io import CompStatus
from nitro_emu.efa.verbs.wr import WcOpcode, WcStatus

_FIELDS = {
    "entry": ((np.void, io.CQE_EX_BYTES), 0),
    "narrow_entry": ((np.void, io.CQE_BYTES), 0),
    "head": ("<u8", 0),
    "req_id": ("<u2", 0),
    "status": ("u1", 2),
    "flags": ("u1", 3),
    "qp_num": ("<u2", 4),
    "length": ("<u2", 6),
    "ah": ("<u2", 8),
    "src_qp": ("<u2", 10),
    "immediate": ("<u4", 12),
    "length_hi": ("<u2", 16),
    "src_gid": (("u1", 16), 16),
    "wr_id": ("<u8", io.CQE_EX_BYTES),
}
COMPLETION: Final[np.dtype[np.void]] = np.dtype(
    {
        "names": [*_FIELDS],
        "formats": [kind for kind, _ in _FIELDS.values()],
        "offsets": [offset for _, offset in _FIELDS.values()],
        "itemsize": io.CQE_EX_BYTES + 8,
    }
)
"""The device's completion (`nitro_emu.efa.abi.io`), and behind it the application's id of the request.

`entry` (or `narrow_entry`, of a queue of 16-byte entries) is the device's completion as a whole, `head` its first 8
bytes. `status` is the device's, 0 if the request succeeded. Of a queue of 16-byte entries, `length_hi` and `src_gid`
are 0.
"""

Completions = npt.NDArray[np.void]

NONE: Final[Completions] = np.zeros(0, COMPLETION)
"""No completions."""

_GENERAL = WcStatus.GENERAL_ERR
_STATUSES: Final = {
    CompStatus.OK: WcStatus.SUCCESS,
    CompStatus.FLUSHED: WcStatus.WR_FLUSH_ERR,
    CompStatus.LOCAL_ERROR_QP_INTERNAL_ERROR: WcStatus.LOC_QP_OP_ERR,
    CompStatus.LOCAL_ERROR_UNSUPPORTED_OP: WcStatus.LOC_QP_OP_ERR,
    CompStatus.LOCAL_ERROR_INVALID_AH: WcStatus.LOC_QP_OP_ERR,
    CompStatus.LOCAL_ERROR_INVALID_LKEY: WcStatus.LOC_PROT_ERR,
    CompStatus.LOCAL_ERROR_BAD_LENGTH: WcStatus.LOC_LEN_ERR,
    CompStatus.REMOTE_ERROR_BAD_ADDRESS: WcStatus.REM_ACCESS_ERR,
    CompStatus.REMOTE_ERROR_ABORT: WcStatus.REM_ABORT_ERR,
    CompStatus.REMOTE_ERROR_BAD_DEST_QPN: WcStatus.REM_INV_RD_REQ_ERR,
    CompStatus.REMOTE_ERROR_RNR: WcStatus.RNR_RETRY_EXC_ERR,
    CompStatus.REMOTE_ERROR_BAD_LENGTH: WcStatus.REM_INV_REQ_ERR,
    CompStatus.REMOTE_ERROR_BAD_STATUS: WcStatus.BAD_RESP_ERR,
    CompStatus.LOCAL_ERROR_UNRESP_REMOTE: WcStatus.RESP_TIMEOUT_ERR,
    CompStatus.REMOTE_ERROR_UNKNOWN_PEER: WcStatus.REM_OP_ERR,
    CompStatus.LOCAL_ERROR_UNREACH_REMOTE: WcStatus.RESP_TIMEOUT_ERR,
    CompStatus.REMOTE_ERROR_FEATURE_MISMATCH: WcStatus.REM_INV_REQ_ERR,
}


def wc_status(status: int) -> WcStatus:
    """Return libibverbs' status for the device's."""
    return _STATUSES.get(status, _GENERAL)  # type: ignore[call-overload, no-any-return]  # a CompStatus is an int


def wc_opcode(*, received: bool, op: int) -> WcOpcode:
    """Return libibverbs' opcode. The completion of a READ says SEND, as in rdma-core."""
    write = op == io.SendOp.RDMA_WRITE
    if received:
        return WcOpcode.RECV_RDMA_WITH_IMM if write else WcOpcode.RECV
    return WcOpcode.RDMA_WRITE if write else WcOpcode.SEND


def byte_lengths(completions: Completions) -> npt.NDArray[np.uint32]:
    """Return the lengths of received messages, with the upper half that those of writes have."""
    lengths: npt.NDArray[Any] = completions["length"].astype(np.uint32)
    written = (completions["flags"] & io.CQE_OP_MASK) >> io.CQE_OP_SHIFT == io.SendOp.RDMA_WRITE
    lengths[written] |= completions["length_hi"][written].astype(np.uint32) << 16
    return lengths
