"""Addresses: GIDs, and handles for the devices that have them."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field
from typing import Final

from nitro_emu.efa import verbs
from pyverbs.base import PyverbsCM, PyverbsObject, translated
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

_TEXT: Final = re.compile(r"([0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}")


class GID(PyverbsObject):
    """A GID. `gid` is its text: eight groups of four hexadecimal digits."""

    def __init__(self, val: str | None = None) -> None:
        self._raw = bytes(16)
        if val is not None:
            self.gid = val

    @property
    def gid(self) -> str:
        """The text."""
        return self._raw.hex(":", 2)

    @gid.setter
    def gid(self, val: str) -> None:
        if not _TEXT.fullmatch(val):
            raise PyverbsUserError(f"Invalid GID value ({val}); give 8 groups of 4 hexadecimal digits")
        self._raw = bytes.fromhex(val.replace(":", ""))

    @classmethod
    def of(cls, raw: bytes) -> GID:
        """Return the GID of these 16 bytes."""
        gid = cls()
        gid._raw = bytes(raw)
        return gid

    @property
    def raw(self) -> bytes:
        """The 16 bytes."""
        return self._raw

    def __str__(self) -> str:
        """Return the text."""
        return self.gid


@dataclass(eq=False)
class GlobalRoute(PyverbsObject):
    """The part of an address that crosses subnets. An EFA device uses only the GID."""

    dgid: GID = field(default_factory=GID)
    flow_label: int = 0
    sgid_index: int = 0
    hop_limit: int = 1
    traffic_class: int = 0


@dataclass(eq=False)
class AHAttr(PyverbsObject):
    """What an address handle is created from."""

    dlid: int = 0
    sl: int = 0
    src_path_bits: int = 0
    static_rate: int = 0
    is_global: int = 0
    port_num: int = 1
    gr: GlobalRoute | None = None


class AH(PyverbsCM):
    """An address handle."""

    def __init__(self, pd: PD, *, attr: AHAttr) -> None:
        if attr.gr is None or not attr.is_global:
            raise PyverbsRDMAError("Failed to create AH: an EFA device is addressed by its GID", errno.EINVAL)
        with translated("Failed to create AH"):
            self.handle = verbs.AddressHandle(pd.pd, gid=attr.gr.dgid.raw)
        super().__init__(self.handle, pd)
