"""Completion statuses, with EFA's numbers and names (rdma-core, providers/efa/efa_io_defs.h).

A request that fails is a completion with a status, never an exception: it disturbs no other request.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How a work request ended. Numbers are EFA's `efa_io_comp_status`."""

    OK = 0
    """Every packet was acknowledged by the responder."""
    FLUSHED = 1
    """Cancelled: its endpoint or peer was closed first."""
    LOCAL_ERROR_QP_INTERNAL_ERROR = 2
    """This end failed by a fault of its own."""
    LOCAL_ERROR_BAD_LENGTH = 6
    """Longer than the responder can take, or than a message may be."""
    REMOTE_ERROR_ABORT = 8
    """The responder closed the peer while the request was in flight."""
    LOCAL_ERROR_UNRESP_REMOTE = 13
    """The responder was responsive, and fell silent."""
    LOCAL_ERROR_UNREACH_REMOTE = 15
    """The responder never answered."""
    REMOTE_ERROR_FEATURE_MISMATCH = 18
    """The responder speaks another version."""
