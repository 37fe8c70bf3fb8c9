"""What a card's control socket can be asked: the arguments of each call, and what answers it.

None of these reads a tenant's memory or a key: a card offers `ControlledCard`, and nothing else, to this module.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from nitro_emu.card.config import CardConfig
from nitro_emu.card.control_gate import CallError
from nitro_emu.log_ring import LogRing
from nitro_emu.trust.audit_log import AuditLog
from nitro_emu.trust.measure import image_sha384

MAX_NONCE_BYTES: Final = 1024
"""The most that AWS's attestation documents have; of a nonce, and of user data."""

MAX_WAIT_S: Final = 10.0
"""How long a request for log records waits for one: so often a client that follows the log asks again."""

_PATH: Final = re.compile(r"/[^\0]{1,4095}", re.DOTALL)


class ControlledCard(Protocol):
    """What a card offers to the control socket."""

    @property
    def config(self) -> CardConfig:
        """Its settings."""

    def status(self) -> dict[str, Any]:
        """Return its state and that of its VFs."""

    def stats(self) -> dict[str, Any]:
        """Return {"vfs": {name: {"port": {...}, "device": {...}, "resources": {...}, "qkey_viol": n ...}}}."""

    def set_map(self, document: bytes) -> dict[str, Any]:
        """Take a mapping of the control plane, signed by it; return what it is. Raises NitroError: it is refused."""

    async def update(self, manifest: str) -> dict[str, Any]:
        """Begin to go on with the software of a manifest, by its path, and return what it is.

        Raises NitroError: it is refused. The card answers this call before it goes on.
        """

    async def attest(self, *, nonce: bytes | None, user_data: bytes | None) -> bytes | None:
        """Return an attestation document; None: this card has no security chip. Raises NitroError.

        It has no public key: one in a document is the card's, as secrets are encrypted for it.
        """

    async def sign_head(self, *, records: int, head: str) -> bytes | None:
        """Return a document that states the audit log's head; None: this card has no chip. Raises NitroError."""


class ControlCalls:
    """The calls of one card; `answers` has what answers each."""

    def __init__(self, card: ControlledCard, *, log: LogRing, audit: AuditLog | None, image: str | None) -> None:
        """`image`: SHA-384 of the software in hexadecimal; default: measured now, of the files as they are now."""
        self._card = card
        self._log_ring = log
        self._audit_log = audit
        self._image = image_sha384().hex() if image is None else image
        self.answers: Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "attest": self._attest,
            "audit": self._audit,
            "logs": self._logs,
            "map": self._map,
            "stats": self._stats,
            "status": self._status,
            "update": self._update,
        }

    async def _status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments)
        return self._card.status()

    async def _stats(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments)
        return self._card.stats()

    async def _logs(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, "after", "wait_s")
        after, wait_s = arguments.get("after", 0), arguments.get("wait_s", 0)
        if not isinstance(after, int) or isinstance(after, bool):
            raise CallError(f"after: {after!r:.100} is no number of a record; give an integer")
        if not isinstance(wait_s, int | float) or isinstance(wait_s, bool) or not 0 <= wait_s <= MAX_WAIT_S:
            raise CallError(f"wait_s: {wait_s!r:.100} is not between 0 and {MAX_WAIT_S}")
        found = await self._log_ring.newer(after, timeout_s=wait_s) if wait_s else self._log_ring.after(after)
        return {"records": found}

    async def _attest(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, *ATTESTED)
        given = {name: bytes_untrusted(name, arguments.get(name)) for name in ATTESTED}
        document = await self._card.attest(nonce=given["nonce"], user_data=given["user_data"])
        if document is not None:
            return {"signed": True, "document": base64.b64encode(document).decode()}
        return unsigned_statement(image=self._image, configuration=self._card.config.sha384, given=arguments)

    async def _audit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments)
        if self._audit_log is None:
            raise CallError("this card keeps no audit log; set audit_log in its settings")
        self._audit_log.flush()
        records, head = self._audit_log.records, self._audit_log.head
        found = {"path": str(self._audit_log.path), "records": records, "head": head}
        if (document := await self._card.sign_head(records=records, head=head)) is not None:
            found["document"] = base64.b64encode(document).decode()
        return found

    async def _map(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, "document")
        text = arguments.get("document")
        try:
            document = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except (binascii.Error, ValueError):
            document = b""
        if not document:
            raise CallError(f"document: {text!r:.100} is no document in base64; nitro-vpc makes them")
        return self._card.set_map(document)

    async def _update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, "manifest")
        manifest = arguments.get("manifest")
        if not isinstance(manifest, str) or not _PATH.fullmatch(manifest):
            raise CallError(f"manifest: {manifest!r:.100} is no absolute path of a file; give one")
        return await self._card.update(manifest)


ATTESTED: Final = ("nonce", "user_data")
"""What a document repeats: arguments of `attest`, in hexadecimal."""


def bytes_untrusted(name: str, value: object) -> bytes | None:
    """Return an argument of `attest` as bytes; None if it is not given. Raises CallError."""
    if value is None:
        return None
    digits = value if isinstance(value, str) else "?"
    if len(digits) % 2 or len(digits) > 2 * MAX_NONCE_BYTES or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise CallError(f"{name}: {value!r:.100} is not up to {MAX_NONCE_BYTES} bytes in hexadecimal")
    return bytes.fromhex(digits)


def unsigned_statement(*, image: str, configuration: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a card without a security chip states, which nothing proves.

    `image`, `configuration`: SHA-384 in hexadecimal, of what a chip would measure; `given`: the arguments of the call.
    """
    return {
        "signed": False,
        "reason": "this card has no security chip",
        "measurements": {"image": image, "configuration": configuration},
        "nonce": given.get("nonce"),
        **{name: value for name, value in given.items() if name in ATTESTED},
    }


def _only(arguments: dict[str, Any], *known: str) -> None:
    if unknown := arguments.keys() - set(known):
        raise CallError(f"no argument {min(unknown)!r:.100}; there are {', '.join(known) or 'none'}")
