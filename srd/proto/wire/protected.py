"""What protection adds to a packet; see `srd.secure.session`, which implements it.

    data      header of 56 bytes ‖ encrypted payload ‖ tag           associated data: the header
    control   prefix of 16 bytes ‖ encrypted control packet ‖ tag    associated data: the prefix, of type PROTECTED

The header stays readable but for the immediate: the receiver finds the keys, the path and the sequence in it.
"""

from __future__ import annotations

import struct
from typing import Final

from srd.proto.wire.data import PREFIX_BYTES

TAG_BYTES: Final = 16
"""Length of the tag of AES-GCM and ChaCha20-Poly1305."""
KEY_PHASE: Final = 0x80
"""Flag of data and of protected control packets: the lowest bit of the number of the keys' generation."""
CONTROL_OVERHEAD_BYTES: Final = PREFIX_BYTES + TAG_BYTES
"""By how much a protected control packet is longer than the control packet in it."""
STAGE_BYTES: Final = 512 << 10
"""A sender encrypts into a stage of this size before the kernel copies from it: it stays in the cache. No burst is
longer."""

_PREFIX_LANES: Final = struct.Struct(">2Q")
_OF_THE_TRAIN: Final = 0xFFFFFFFFFFFFFFFF & ~(
    (0xFF & ~KEY_PHASE) << 40
)  # of the first lane: all but a message's own flags


def continued_untrusted(packets: memoryview, *, stride: int, count: int) -> int:
    """Return how many of `count` encrypted data packets, one every `stride` bytes, are of one train with the first.

    They have its version, type, key phase, path and context, and path sequences that count up from its own. A tag
    shows who has sealed a packet, and with which number, but not that its header says so: whoever has keys of his own
    may seal a header with the context of another peer.
    """
    lane, context = _PREFIX_LANES.unpack_from(packets)
    for index in range(1, count):
        other, its_context = _PREFIX_LANES.unpack_from(packets, index * stride)
        if its_context != context or (other ^ lane + index) & _OF_THE_TRAIN:
            return index
    return count
