"""Completion statuses, with EFA's numbers and names (rdma-core, providers/efa/efa_io_defs.h).

A request that fails is a completion with a status, never an exception: it disturbs no other request.

EFA's words are about address handles and queue pairs; here, a peer is what an address handle is (what this end keeps of
the other), and an endpoint that takes peers is what a queue pair is (what there is to talk to at an address).
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How a work request ended. Numbers are EFA's `efa_io_comp_status`."""

    OK = 0
    """Every packet was acknowledged by the responder; a read's bytes have landed."""
    FLUSHED = 1
    """Cancelled, or its endpoint was closed first."""
    LOCAL_ERROR_QP_INTERNAL_ERROR = 2
    """This end failed by a fault of its own."""
    LOCAL_ERROR_UNSUPPORTED_OP = 3
    """This end cannot do that: a read without registered memory to land in."""
    LOCAL_ERROR_INVALID_AH = 4
    """The request names a peer that this end does not have (any more)."""
    LOCAL_ERROR_INVALID_LKEY = 5
    """The local registration of a read does not exist (any more), or lacks the range or the right."""
    LOCAL_ERROR_BAD_LENGTH = 6
    """Longer than a message may be (1 GiB)."""
    REMOTE_ERROR_BAD_ADDRESS = 7
    """The remote key does not exist (any more), or its registration lacks the range or the right. Which of these is
    not said, so that guessing teaches nothing."""
    REMOTE_ERROR_ABORT = 8
    """The responder closed the peer, or gave up the message, while the request was in flight."""
    REMOTE_ERROR_BAD_DEST_QPN = 9
    """The endpoint at the other end takes no peers."""
    REMOTE_ERROR_RNR = 10
    """The receiver was not ready: it had no memory for the message, for as often as `rnr_retry` allows."""
    REMOTE_ERROR_BAD_LENGTH = 11
    """Longer than the responder takes."""
    REMOTE_ERROR_BAD_STATUS = 12
    """The responder refused, for a reason that this end does not know."""
    LOCAL_ERROR_UNRESP_REMOTE = 13
    """The responder was responsive, and fell silent; or it lives, and the request's time is up."""
    REMOTE_ERROR_UNKNOWN_PEER = 14
    """The responder answers that it does not know this end (any more): its process is another one than before."""
    LOCAL_ERROR_UNREACH_REMOTE = 15
    """The responder never answered."""
    REMOTE_ERROR_FEATURE_MISMATCH = 18
    """The responder speaks another version."""


REFUSALS = {
    Status.REMOTE_ERROR_BAD_ADDRESS,
    Status.REMOTE_ERROR_ABORT,
    Status.REMOTE_ERROR_RNR,
    Status.REMOTE_ERROR_BAD_LENGTH,
}
"""With what a responder may end a request."""


def refusal_untrusted(number: int) -> Status:
    """Return the status that a responder's number stands for: one of REFUSALS, or REMOTE_ERROR_BAD_STATUS."""
    return Status(number) if number in REFUSALS else Status.REMOTE_ERROR_BAD_STATUS
