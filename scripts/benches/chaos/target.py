"""Registered memory that detects misplaced writes.

A target is a registration's memory between two guard areas that no key covers. Every request has its own range in it.
Data that has landed is checked and overwritten at once, which detects later duplicate writes. A withdrawn target must
not change any more.

Reads are served from a registered part of the hosts' common noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from srd.proto.memory import Memory

Bytes = npt.NDArray[np.uint8]

GUARD_BYTES: Final = 4096
SPARE_BYTES: Final = 100_000
"""Spare room at the end of a target, for writes that exceed it by a byte, of which the part within may be written."""
READABLE_FROM: Final = 4096
"""The noise before this offset, and as much at its end, is not registered."""
FILL: Final = 0
CONSUMED: Final = 0xFF


class CheckedTarget:
    """One registration: `expect` messages, check those that `arrived`, list the `faults`."""

    def __init__(self, *, key: int, read_key: int, size_bytes: int) -> None:
        self.key = key
        self.read_key = read_key
        self.size_bytes = size_bytes + SPARE_BYTES
        self.memory = np.full(self.size_bytes + 2 * GUARD_BYTES, FILL, np.uint8)
        self._sealed: Bytes | None = None
        self._expected: dict[int, tuple[int, Bytes]] = {}
        self._consumed: set[int] = set()

    def expect(self, number: int, *, offset: int, data: Bytes) -> None:
        self._expected[number] = (offset, data)

    def arrived(self, number: int) -> bool:
        """Check and overwrite message `number`; return whether all of it has landed."""
        offset, data = self._expected[number]
        landed = self._slot(self.memory, offset, len(data))
        right = bool(np.array_equal(landed, data))
        if self._sealed is None:
            landed[:] = CONSUMED
            self._consumed.add(number)
        return right

    def seal(self) -> None:
        """Require that nothing changes from now on."""
        self._sealed = self.memory.copy()

    def faults(self) -> Iterator[str]:
        if self._sealed is not None and not np.array_equal(self.memory, self._sealed):
            yield "memory was written after its key was withdrawn"
        rest = self.memory.copy()
        self._slot(rest, self.size_bytes - SPARE_BYTES, SPARE_BYTES)[:] = FILL
        for number, (offset, data) in self._expected.items():
            landed = self._slot(rest, offset, len(data))
            if number in self._consumed and (landed != CONSUMED).any():
                yield f"memory of message {number} was written after it had arrived"
            elif number not in self._consumed and ((landed != FILL) & (landed != data)).any():
                yield f"memory of message {number} has wrong bytes"
            landed[:] = FILL
        if (stray := np.flatnonzero(rest != FILL)).size:
            at = int(stray[0]) - GUARD_BYTES
            yield f"{stray.size} bytes were written outside of all messages, from {at} of {self.size_bytes}"

    @staticmethod
    def _slot(memory: Bytes, offset: int, length: int) -> Bytes:
        return memory[GUARD_BYTES + offset : GUARD_BYTES + offset + length]


class CheckedKeys(Memory):
    """All targets of a host; the last one is registered."""

    def __init__(self, *, size_bytes: int, readable_bytes: int, rng: Random) -> None:
        self.readable_bytes = readable_bytes - 2 * READABLE_FROM
        self.targets: list[CheckedTarget] = []
        self._size_bytes = size_bytes
        self._rng = rng
        self.renew()

    @property
    def current(self) -> CheckedTarget:
        return self.targets[-1]

    def renew(self) -> None:
        if self.targets:
            self.current.seal()
        key, read_key = self._rng.getrandbits(64), self._rng.getrandbits(64)
        self.targets.append(CheckedTarget(key=key, read_key=read_key, size_bytes=self._size_bytes))

    def put(self, address: int, data: Bytes) -> None:
        """Write to an address from `local_writable` or `remote_writable`, even if the target was withdrawn since."""
        target, at = divmod(address, 1 << 32)
        self.targets[target].memory[at : at + len(data)] = data

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """As `remote_writable`: one key serves as both."""
        return self._writable(key, offset=offset, length=length)

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return target and offset as one number. There is one peer."""
        del peer
        return self._writable(key, offset=offset, length=length)

    def _writable(self, key: int, *, offset: int, length: int) -> int | None:
        if key != self.current.key or not 0 <= offset <= self.current.size_bytes - length:
            return None
        return (len(self.targets) - 1 << 32) + GUARD_BYTES + offset

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return an offset in the noise."""
        del peer
        if key != self.current.read_key or not 0 <= offset <= self.readable_bytes - length:
            return None
        return READABLE_FROM + offset
