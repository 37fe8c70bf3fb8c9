"""Attestation between cards: a card's own documents for its peers, and what it requires of theirs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from nitro_emu.errors import TrustError
from nitro_emu.trust.verify import Expectation, root_untrusted, verify_untrusted

OWN_USER_DATA: Final = b"open-srd:"
"""Begins the user data of what a card asks its chip to state on its own behalf. Nobody gets another document with that,
nor one with a public key, so that none that a tenant asks for passes as the card's own word."""

PEER_USER_DATA: Final = OWN_USER_DATA + b" a card to its peer, version 1"
"""The user data of documents for peers."""

_log: Final = logging.getLogger(__name__)


class Attest(Protocol):
    """What asks the security chip for a document."""

    def __call__(self, *, nonce: bytes | None, user_data: bytes | None, public_key: bytes | None) -> Awaitable[bytes]:
        """Return a signed document. Raises TrustError when there is no chip any more."""


class PeerAttestation:
    """One card's: with or without a chip, and with or without a requirement."""

    def __init__(
        self,
        *,
        attest: Attest | None = None,
        required: Sequence[Expectation] = (),
        count_refused: Callable[[str], None] | None = None,
    ) -> None:
        """`attest`: None without a chip; `required`: what a document must show, for each root; empty: nothing."""
        self._attest = attest
        self._required = required
        self._count_refused = count_refused

    @property
    def has_chip(self) -> bool:
        """Whether documents can be made: it takes a while."""
        return self._attest is not None

    async def document(self, *, nonce: bytes, public_key: bytes) -> bytes:
        """Return this card's document for a peer, with its own public key; nothing without a chip that answers."""
        if self._attest is None:
            return b""
        try:
            return await self._attest(nonce=nonce, user_data=PEER_USER_DATA, public_key=public_key or None)
        except TrustError as error:
            _log.warning("no attestation for a peer: %s", error)
            return b""

    def check_untrusted(self, document: bytes, *, nonce: bytes, public_key: bytes) -> None:
        """Raise TrustError unless a peer's document is what is required: made for this peer, by a card with its key."""
        if not self._required:
            return
        try:
            expected = _choose_untrusted(document, required=self._required)
            expected = replace(expected, nonce=nonce, public_key=public_key, user_data=PEER_USER_DATA)
            verify_untrusted(document, expected=expected)
        except TrustError as error:
            if self._count_refused is not None:
                self._count_refused(str(error))
            raise


def _choose_untrusted(document: bytes, *, required: Sequence[Expectation]) -> Expectation:
    """Return the requirement with the document's root; the first one, if none has it. Raises TrustError."""
    if not document:
        raise TrustError("a peer has no attestation document, which this card requires")
    root = root_untrusted(document)
    return next((each for each in required if each.root == root), required[0])
