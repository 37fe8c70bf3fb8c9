"""Registered memory."""

from __future__ import annotations

import ctypes
from typing import Final

from nitro_emu.efa import verbs
from pyverbs.absent import Absent
from pyverbs.base import PyverbsCM, translated
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsUserError

_OPTIONAL_ACCESS: Final = ((1 << 10) - 1) << 20
"""Access flags that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE)."""


class MR(PyverbsCM):
    """Registered memory: new, or from `address`, which must be in a shared mapping (see `verbs.shared`)."""

    def __init__(
        self,
        creator: PD,
        length: int = 0,
        access: int = 0,
        address: int | None = None,
        implicit: bool = False,  # noqa: FBT001, FBT002 - pyverbs' signature
        **kwargs: object,
    ) -> None:
        if implicit or any(kwargs.values()):
            raise PyverbsUserError(f"implicit and {sorted(kwargs)} are not supported by this device")
        rights = verbs.Access(int(access) & ~_OPTIONAL_ACCESS)
        with translated("Failed to register a MR"):
            if address is None:
                self.mr = verbs.MemoryRegion.allocate(creator.pd, length=length, access=rights)
            else:
                self.mr = verbs.MemoryRegion.at(creator.pd, address=address, length=length, access=rights)
        super().__init__(self.mr, creator)

    @property
    def buf(self) -> int:
        """The address."""
        return self.mr.address

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.mr.length

    @property
    def lkey(self) -> int:
        """The key of own requests."""
        return self.mr.lkey

    @property
    def rkey(self) -> int:
        """The key of others' requests."""
        return self.mr.rkey

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        """Write the first `length` bytes of `data`."""
        content = (data.encode() if isinstance(data, str) else data)[:length]
        self._check(len(content), offset=offset)
        ctypes.memmove(self.buf + offset, content, len(content))

    def read(self, length: int, offset: int) -> bytes:
        """Return `length` bytes."""
        self._check(length, offset=offset)
        return ctypes.string_at(self.buf + offset, length)

    def _check(self, length: int, *, offset: int) -> None:
        if self.mr.closed:
            raise PyverbsUserError("The MR is closed")
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsUserError(f"bytes {offset} to {offset + length} are not within a MR of {self.length}")


class MREx(Absent):
    """A registration with extended attributes."""


class MW(Absent):
    """A memory window."""


class MWBindInfo(Absent):
    """What a memory window is bound to."""


class DmaHandleInitAttr(Absent):
    """Attributes of a DMA handle."""
