"""Completion statuses, with EFA's numbers and names (rdma-core, providers/efa/efa_io_defs.h).

A request that fails completes with a status, never with an exception, and affects no other request.

EFA's names refer to address handles and queue pairs. Here a peer corresponds to an address handle (the state that this
end keeps of the other), and an endpoint that accepts peers to a queue pair (the destination at an address).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Status(IntEnum):
    """How a work request ended. Numbers are EFA's `efa_io_comp_status`."""

    OK = 0
    """Every packet was acknowledged by the responder; a read's bytes have landed."""
    FLUSHED = 1
    """Cancelled, or its endpoint was closed first."""
    LOCAL_ERROR_QP_INTERNAL_ERROR = 2
    """This end failed by an internal error."""
    LOCAL_ERROR_UNSUPPORTED_OP = 3
    """This end cannot do that: a read without registered memory to land in."""
    LOCAL_ERROR_INVALID_AH = 4
    """The request names a peer that this end does not have (any more)."""
    LOCAL_ERROR_INVALID_LKEY = 5
    """The local registration of a read does not exist (any more), or does not allow the range or the access."""
    LOCAL_ERROR_BAD_LENGTH = 6
    """Longer than the longest message (1 GiB)."""
    REMOTE_ERROR_BAD_ADDRESS = 7
    """The remote key does not exist (any more), or its registration does not allow the range or the access. Which of
    these is not disclosed, so that guessing keys reveals nothing."""
    REMOTE_ERROR_ABORT = 8
    """The responder closed the peer, or discarded the message, while the request was in flight."""
    REMOTE_ERROR_BAD_DEST_QPN = 9
    """The endpoint at the other end accepts no peers; or, of a card, there is no such queue pair."""
    REMOTE_ERROR_RNR = 10
    """The receiver was not ready: it had no memory for the message, more often than `rnr_retry` allows."""
    REMOTE_ERROR_BAD_LENGTH = 11
    """Longer than the responder accepts."""
    REMOTE_ERROR_BAD_STATUS = 12
    """The responder refused, with a status that this end does not know."""
    LOCAL_ERROR_UNRESP_REMOTE = 13
    """The responder was responsive, and stopped answering; or it answers, and the request's time is up."""
    REMOTE_ERROR_UNKNOWN_PEER = 14
    """The responder answers that it does not know this end (any more): its process was replaced."""
    LOCAL_ERROR_UNREACH_REMOTE = 15
    """The responder never answered."""
    REMOTE_ERROR_FEATURE_MISMATCH = 18
    """The responder uses another version of the protocol."""


REFUSALS: Final = {
    Status.REMOTE_ERROR_BAD_ADDRESS,
    Status.REMOTE_ERROR_ABORT,
    Status.REMOTE_ERROR_BAD_DEST_QPN,
    Status.REMOTE_ERROR_RNR,
    Status.REMOTE_ERROR_BAD_LENGTH,
}
"""Statuses that a responder may end a request with."""


class RefuseReason(IntEnum):
    """Why a peer is refused, beside the status."""

    NONE = 0
    NEEDS_PLAIN = 1
    """The responder's `SecurityMode`, plus one, where the modes differ."""
    NEEDS_PSK = 2
    NEEDS_KEYS = 3
    NEEDS_CERT = 4
    TOO_SMALL = 254
    """The datagram size that the initiator proposes has no room for the responder's certificate."""
    NOT_AUTHORIZED = 255
    """The responder does not accept the initiator's key or certificate."""


def refusal_untrusted(number: int) -> Status:
    """Return the status for a responder's number: one of REFUSALS, or REMOTE_ERROR_BAD_STATUS."""
    return Status(number) if number in REFUSALS else Status.REMOTE_ERROR_BAD_STATUS
