"""The error tree of the `nitro_emu` package.

NitroError           anything this package raises on purpose
├── ConfigError      a configuration that cannot be used
├── CardError        the card cannot start, or cannot go on
├── AdminError       an admin command was refused; carries a status of the admin queue
├── VerbsError       a verbs call failed; carries a positive errno
├── TrustError       a signature, measurement, document or permission that does not hold
├── VpcError         a mapping of the control plane that cannot be used
└── AbiError         an entry from the other process that is malformed
"""

from __future__ import annotations


class NitroError(Exception):
    """Root of the errors of this package."""


class ConfigError(NitroError):
    """A configuration that cannot be used; the message names the key and the remedy."""


class CardError(NitroError):
    """The card cannot start, or cannot go on."""


class AdminError(NitroError):
    """An admin command was refused.

    `status` is an `AdminStatus` of `nitro_emu.efa.abi.admin`; `command_id` is the refused command's, None if unknown.
    """

    def __init__(self, status: int, text: str = "", *, command_id: int | None = None) -> None:
        super().__init__(status, text)
        self.status = status
        self.command_id = command_id

    def __str__(self) -> str:
        """Return the text, or the bare status."""
        return str(self.args[1]) or f"admin status {self.status}"


class VerbsError(NitroError):
    """A verbs call failed. `errno` is positive, as the C functions return it."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(errno, text)
        self.errno = errno

    def __str__(self) -> str:
        """Return the text."""
        return str(self.args[1])


class TrustError(NitroError):
    """A signature, a measurement, a document or a permission does not hold; the message is the first reason."""


class VpcError(NitroError):
    """A mapping of the control plane cannot be used; the message names the reason and the remedy."""


class AbiError(NitroError):
    """An entry from the other process is malformed. `field` is the name of the field that shows it."""

    def __init__(self, text: str, *, field: str = "") -> None:
        super().__init__(text)
        self.field = field
