# Packet encryption in C, a burst a call; see srd.secure.packets, rule 3.

from typing import final

from typing_extensions import Buffer

LIBRARY: str  # name and version of libcrypto

@final
class Keys:  # of one direction and generation: they either seal packets, or open them
    def __init__(self, *, suite: int, key: Buffer, iv: Buffer, immediates_key: Buffer, seals: bool) -> None: ...
    def seal(
        self,
        packets: Buffer,
        payloads: list[memoryview],
        segment_bytes: int,
        path: int,
        path_sequence: int,
        phase: int,
        /,
    ) -> int: ...
    def open_untrusted(
        self,
        packets: Buffer,
        start: int,
        stride: int,
        size_bytes: int,
        count: int,
        last_bytes: int,
        number: int,
        out: Buffer,
        headers: Buffer,
        /,
    ) -> int: ...
