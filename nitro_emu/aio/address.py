"""The address of a queue pair: the device's GID, the queue pair's number, and its queue key.

As text: HOST:PORT/QPN/QKEY, such as 10.0.1.1:19875/12/5f3a9c01 or [fd00::1]:19875/12/5f3a9c01. HOST:PORT is the GID's
(`nitro_emu.abi.gid`), QPN is decimal, and QKEY has eight hexadecimal digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from netns.base.addresses import host_port_text
from nitro_emu.abi.gid import address_of_untrusted, gid_of
from nitro_emu.errors import AbiError

MAX_QPN: Final = (1 << 16) - 1
MAX_QKEY: Final = (1 << 32) - 1
EXAMPLE: Final = "10.0.1.1:19875/12/5f3a9c01"
_TEXT: Final = re.compile(r"(\[[0-9a-fA-F:.]{1,64}\]|[0-9.]{1,64}):([0-9]{1,5})/([0-9]{1,5})/([0-9a-f]{8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class QpAddress:
    """All that a sender needs to know of a queue pair. Raises AbiError for numbers that no queue pair has."""

    gid: bytes
    qpn: int
    qkey: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        address_of_untrusted(self.gid)
        if not 0 < self.qpn <= MAX_QPN:
            raise AbiError(f"qpn: {self.qpn} is not within 1 and {MAX_QPN}", field="qpn")
        if not 0 <= self.qkey <= MAX_QKEY:
            raise AbiError(f"qkey: {self.qkey} is no 32-bit number", field="qkey")

    @property
    def host_port(self) -> tuple[str, int]:
        """The IP address and the UDP port of the card."""
        return address_of_untrusted(self.gid)

    def text(self) -> str:
        """Return the address as text."""
        return f"{host_port_text(*self.host_port)}/{self.qpn}/{self.qkey:08x}"

    @classmethod
    def of_text_untrusted(cls, text: str) -> Self:
        """Return the address that a text names. Raises AbiError, and nothing else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise AbiError(f"{text[:80]!r} is not HOST:PORT/QPN/QKEY, such as {EXAMPLE}", field="text")
        host, port, qpn, qkey = found.groups()
        return cls(gid_of(host.strip("[]"), port=int(port)), int(qpn), int(qkey, 16))
