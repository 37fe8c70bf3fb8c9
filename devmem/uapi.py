"""The kernel's layouts and limits of device memory, for tools that use them.

Sources: include/uapi/linux/uio.h (dmabuf_cmsg, dmabuf_token), include/uapi/asm-generic/socket.h, net/core/sock.c
(sock_devmem_dontneed) and Documentation/networking/devmem.rst; include/uapi/linux/io_uring/zcrx.h (zcrx_rqe, area).
"""

from __future__ import annotations

import numpy as np

SO_DEVMEM_LINEAR = 78
SO_DEVMEM_DMABUF = 79
SO_DEVMEM_DONTNEED = 80
MSG_SOCK_DEVMEM = 0x2000000

DMABUF_CMSG = np.dtype(
    [
        ("frag_offset", "<u8"),  # in the region, bytes
        ("frag_size", "<u4"),
        ("frag_token", "<u4"),
        ("dmabuf_id", "<u4"),  # the region's
        ("flags", "<u4"),  # 0
    ]
)
"""One fragment; 24 bytes."""

DMABUF_TOKEN = np.dtype([("token_start", "<u4"), ("token_count", "<u4")])
"""A range of tokens to return; 8 bytes."""

MAX_DONTNEED_RANGES = 128
"""Ranges per call."""
MAX_DONTNEED_FRAGS = 1024
"""Tokens that a call processes before it returns early, so that a large count does not block the caller."""
MAX_TOKEN = (1 << 31) - 1

ZCRX_RQE = np.dtype([("off", "<u8"), ("len", "<u4"), ("pad", "<u4")])
"""An entry of a refill ring; 16 bytes."""
AREA_SHIFT = 48
"""`off` names the area in its upper 16 bits (IORING_ZCRX_AREA_SHIFT)."""
MAX_AREA = (1 << 15) - 1
"""Largest area number here; the highest bit stays 0, so that `off` fits into a signed number."""
