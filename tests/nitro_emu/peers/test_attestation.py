"""What a peer's document must show: the root, the registers, this peer's nonce and key, and that it is for a peer."""

from __future__ import annotations

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.peers.attestation import PEER_USER_DATA, PeerAttestation
from nitro_emu.trust.pki import make_root
from nitro_emu.trust.verify import Expectation
from tests.nitro_emu.trust.samples import HOUR, NOW, authorities, signed

NONCE, KEY = b"n" * 48, b"k" * 32
GOOD = signed(nonce=NONCE, public_key=KEY, user_data=PEER_USER_DATA)


def requirement(refused: list[str], **changes: object) -> PeerAttestation:
    other = make_root("another chip's", now=NOW).certificate
    wanted = [Expectation(root=root, at=NOW + HOUR, **changes) for root in (other, authorities()[0].certificate)]  # type: ignore[arg-type]
    return PeerAttestation(required=wanted, count_refused=refused.append)


def test_document__made_for_this_peer_is_accepted_by_the_root_that_it_has() -> None:
    refused: list[str] = []
    requirement(refused).check_untrusted(GOOD, nonce=NONCE, public_key=KEY)
    requirement(refused, pcrs={0: b"\1" * 48}).check_untrusted(GOOD, nonce=NONCE, public_key=KEY)
    assert not refused


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "no attestation document"),
        (b"\x84", "CBOR"),
        (signed(nonce=b"m" * 48, public_key=KEY, user_data=PEER_USER_DATA), "nonce"),
        (signed(nonce=NONCE, public_key=b"l" * 32, user_data=PEER_USER_DATA), "public_key"),
        (signed(nonce=NONCE, public_key=KEY, user_data=None), "user_data"),
        (signed(nonce=NONCE, public_key=KEY, user_data=b"of a tenant"), "user_data"),
    ],
    ids=["none", "no document", "another peer's", "another card's", "no purpose", "a tenant's"],
)
def test_document__that_is_not_for_this_peer_is_refused_and_counted(document: bytes, reason: str) -> None:
    refused: list[str] = []
    with pytest.raises(TrustError, match=reason):
        requirement(refused).check_untrusted(document, nonce=NONCE, public_key=KEY)
    assert len(refused) == 1


def test_document__with_other_registers_is_refused() -> None:
    refused: list[str] = []
    with pytest.raises(TrustError, match="PCR0"):
        requirement(refused, pcrs={0: b"\2" * 48}).check_untrusted(GOOD, nonce=NONCE, public_key=KEY)
    assert len(refused) == 1


def test_without_a_requirement__anything_is_accepted() -> None:
    PeerAttestation().check_untrusted(b"", nonce=NONCE, public_key=KEY)
