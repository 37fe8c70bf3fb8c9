"""What protection adds to a packet; see `srd.secure.session`, which implements it.

    data      header of 56 bytes ‖ encrypted payload ‖ tag           associated data: the header
    control   prefix of 16 bytes ‖ encrypted control packet ‖ tag    associated data: the prefix, of type PROTECTED

The header stays readable but for the immediate: the receiver finds the keys, the path and the sequence in it.
"""

from __future__ import annotations

from srd.proto.wire.data import PREFIX_BYTES

TAG_BYTES = 16
"""Length of the tag of AES-GCM and ChaCha20-Poly1305."""
KEY_PHASE = 0x80
"""Flag of data and of protected control packets: the lowest bit of the number of the keys' generation."""
CONTROL_OVERHEAD_BYTES = PREFIX_BYTES + TAG_BYTES
"""By how much a protected control packet is longer than the control packet in it."""
STAGE_BYTES = 512 << 10
"""A sender encrypts into a stage of this size before the kernel copies from it: it stays in the cache. No burst is
longer."""
