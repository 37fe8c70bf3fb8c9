"""The kernel's layouts and limits of device memory, for tools that use them.

Sources: include/uapi/linux/uio.h (dmabuf_cmsg, dmabuf_token), include/uapi/asm-generic/socket.h, net/core/sock.c
(sock_devmem_dontneed) and Documentation/networking/devmem.rst.
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
