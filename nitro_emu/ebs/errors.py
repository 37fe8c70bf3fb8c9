"""The errors of volumes; their root is `VolumeError`."""

from __future__ import annotations

from nitro_emu.errors import NitroError


class VolumeError(NitroError):
    """A volume, a server of volumes or a client of one cannot go on; the message names what, and the remedy."""


class DeviceError(VolumeError):
    """A request of a block device failed. `errno_value` is positive, as in `errno`; the host is told it."""

    def __init__(self, errno_value: int, message: str) -> None:
        super().__init__(errno_value, message)
        self.errno_value = errno_value

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[1])
