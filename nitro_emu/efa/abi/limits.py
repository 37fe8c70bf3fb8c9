"""What a device and its queues may have at most. A driver learns these from the card (GET_FEATURE)."""

from __future__ import annotations

from typing import Final

WQE_BYTES: Final = 64
"""A send queue's narrow entry."""
WIDE_WQE_BYTES: Final = 128
"""A send queue's wide entry: more inline data, half the depth."""

MAX_LLQ_BYTES: Final = 256 << 10
"""The send ring; the maximal depth is this divided by the size of an entry."""
MAX_SQ_DEPTH: Final = MAX_LLQ_BYTES // WQE_BYTES
"""Entries of a send queue of 64-byte entries."""
MAX_WIDE_SQ_DEPTH: Final = MAX_LLQ_BYTES // WIDE_WQE_BYTES
"""Entries of a send queue of 128-byte entries."""
MAX_RQ_DEPTH: Final = 32768
"""Descriptors of a receive queue; a receive request takes one for each of its buffers."""
MAX_CQ_DEPTH: Final = 32768
"""Entries of a completion queue. Half of a 16-bit counter's range, so that the phase is a function of the counter."""

MAX_SEND_SGES: Final = 2
"""Buffers of a SEND."""
MAX_RDMA_SGES: Final = 1
"""Local buffers of an RDMA READ or WRITE."""
MAX_RECV_SGES: Final = 2
"""Buffers of a receive request."""

INLINE_BYTES: Final = 32
"""Inline data of a SEND in a 64-byte entry. There is no room for an inline RDMA WRITE in one."""
WIDE_INLINE_BYTES: Final = 80
"""Inline data of a SEND or RDMA WRITE in a 128-byte entry."""

MAX_RDMA_BYTES: Final = 1 << 30
"""An RDMA READ or WRITE. A SEND is limited by the MTU, which the card reports."""
MAX_RECV_SGE_BYTES: Final = 0xFFFF
"""One receive buffer: its length field has 16 bits, and drivers cap longer buffers."""

MAX_KEY: Final = (1 << 24) - 1
"""An lkey has 24 bits."""
MAX_RNR_RETRY: Final = 7
"""Of MODIFY_QP's `rnr_retry`; this value stands for retries without limit."""
RNR_RETRY_FOREVER: Final = MAX_RNR_RETRY
