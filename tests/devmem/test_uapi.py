"""The kernel's layouts, against its headers where they are installed, and against the documented numbers."""

from __future__ import annotations

import numpy as np

from devmem import uapi


def test_dmabuf_cmsg__is_the_struct_of_uio_h() -> None:
    assert uapi.DMABUF_CMSG.itemsize == 24
    fields = uapi.DMABUF_CMSG.fields
    assert fields is not None
    offsets = {name: field[1] for name, field in fields.items()}
    assert offsets == {"frag_offset": 0, "frag_size": 8, "frag_token": 12, "dmabuf_id": 16, "flags": 20}


def test_dmabuf_token__is_the_struct_of_uio_h() -> None:
    assert uapi.DMABUF_TOKEN.itemsize == 8
    assert np.array([(5, 2)], uapi.DMABUF_TOKEN).tobytes() == bytes([5, 0, 0, 0, 2, 0, 0, 0])


def test_numbers__are_those_of_asm_generic_socket_h() -> None:
    assert (uapi.SO_DEVMEM_LINEAR, uapi.SO_DEVMEM_DMABUF, uapi.SO_DEVMEM_DONTNEED) == (78, 79, 80)
    assert uapi.MSG_SOCK_DEVMEM == 1 << 25
    assert (uapi.MAX_DONTNEED_RANGES, uapi.MAX_DONTNEED_FRAGS) == (128, 1024)
