"""The chain of certificates: each fault of one is the reason for which a document is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from nitro_emu.trust.chain import _verify_signature
from nitro_emu.trust.documents import sign
from nitro_emu.trust.pki import Authority, public_key_of
from nitro_emu.trust.verify import verify_untrusted
from tests.nitro_emu.trust.samples import HOUR, NOW, authorities, expectation, issue, reason, signed, stated

Chain = tuple[Authority, ...]


def ca(issuer: Authority | None, name: str, **changes: object) -> Authority:
    wanted: dict[str, object] = {"ca": True, "usage": "key_cert_sign", **changes}
    return issue(issuer, name, **wanted)  # type: ignore[arg-type]


def below(root: Authority, **changes: object) -> Chain:
    """A chain whose middle certificate has these faults."""
    middle = ca(root, "middle", **changes)
    return (root, middle, issue(middle, "leaf"))


def with_leaf(root: Authority, **changes: object) -> Chain:
    return (root, issue(root, "leaf", **changes))  # type: ignore[arg-type]


def skipped(root: Authority) -> Chain:
    """A chain without the certificate that issued the leaf."""
    return (root, below(root)[-1])


def same_name(root: Authority) -> Chain:
    """A certificate that has the issuer's name, but not its key."""
    return (root, issue(ca(None, "root"), "leaf"))


def too_deep(root: Authority) -> Chain:
    first = ca(root, "first", path_length=1)
    second = ca(first, "second")
    third = ca(second, "third")
    return (root, first, second, third, issue(third, "leaf"))


def leaf_issues(root: Authority) -> Chain:
    middle = issue(root, "middle")
    return (root, middle, issue(middle, "leaf"))


def upside_down(root: Authority) -> Chain:
    chain = below(root)
    return (chain[1], chain[0], chain[2])


UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
CHAINS: dict[str, tuple[Callable[[Authority], Chain], str]] = {
    "skipped": (skipped, "the certificate 'leaf' names another issuer than 'root', which is above it"),
    "issuer's name only": (same_name, "the certificate 'leaf' has a signature that is not of 'root'"),
    "another issuer's name": (
        lambda root: with_leaf(root, issuer_name="other"),
        "the certificate 'leaf' names another issuer than 'root'",
    ),
    "upside down": (upside_down, "the document's root is 'middle' ("),
    "path length": (
        too_deep,
        "the certificate 'first' allows at most 1 authorities below it, but the chain has 2",
    ),
    "path length 0": (
        lambda root: (
            root,
            first := ca(root, "first", path_length=0),
            second := ca(first, "second"),
            issue(second, "l"),
        ),
        "the certificate 'first' allows at most 0 authorities below it, but the chain has 1",
    ),
    "a leaf issues": (leaf_issues, "the certificate 'middle' is not an authority's, but issues another one"),
    "no basicConstraints": (
        lambda root: below(root, ca=None),
        "the certificate 'middle' is not an authority's, but issues another one",
    ),
    "no keyCertSign": (
        lambda root: below(root, usage="crl_sign"),
        "the certificate 'middle' may not sign certificates (its key usage lacks keyCertSign)",
    ),
    "no keyUsage": (lambda root: below(root, usage=""), "the certificate 'middle' may not sign certificates"),
    "leaf is an authority": (
        lambda root: with_leaf(root, ca=True),
        "the certificate 'leaf' is an authority's; a document is signed with a leaf's key",
    ),
    "no digitalSignature": (
        lambda root: with_leaf(root, usage="crl_sign"),
        "the certificate 'leaf' may not sign documents (its key usage lacks digitalSignature)",
    ),
    "leaf without keyUsage": (lambda root: with_leaf(root, usage=""), "the certificate 'leaf' may not sign documents"),
    "expired in the middle": (
        lambda root: below(root, end=NOW + HOUR / 2),
        "the certificate 'middle' is valid 2026-03-04T05:06:07Z to 2026-03-04T05:36:07Z, no longer at",
    ),
    "not yet valid in the middle": (
        lambda root: below(root, start=NOW + 2 * HOUR),
        "the certificate 'middle' is valid 2026-03-04T07:06:07Z to 2026-03-04T08:06:07Z, not yet at",
    ),
    "leaf expired": (lambda root: with_leaf(root, end=NOW + HOUR / 2), "the certificate 'leaf' is valid 2026-03-04T05"),
    "SHA-256": (
        lambda root: with_leaf(root, algorithm=SHA256()),
        "the certificate 'leaf' is not signed with ECDSA and SHA-384",
    ),
    "P-256 in the middle": (
        lambda root: (root, ca(root, "middle", curve=SECP256R1()), issue(root, "leaf")),
        "the document's cabundle[1] is no certificate that can be used: the certificate 'middle' has a key that is not",
    ),
    "unknown critical extension": (
        lambda root: below(root, extension=UNKNOWN),
        "the certificate 'middle' has the critical extension 1.2.3.4, which is not known",
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_that_are_refused(name: str) -> None:
    make, why = CHAINS[name]
    root = ca(None, "root")
    chain = make(root)
    assert reason(signed(chain), expectation(chain, root=root.certificate)).startswith(why)


def test_leaf_of_p256_is_refused() -> None:
    root = ca(None, "root")
    leaf = issue(root, "leaf", curve=SECP256R1())
    document = sign(stated((root, leaf)), key=generate_private_key(SECP384R1()))
    assert "'leaf' has a key that is not of P-384" in reason(document, expectation((root, leaf)))


def test_roots_own_faults_are_found() -> None:
    for changes, why in (
        ({"end": NOW + HOUR / 2}, "'root' is valid"),
        ({"ca": False}, "'root' is not an authority's"),
        ({"usage": "crl_sign"}, "'root' may not sign certificates"),
        ({"path_length": 0}, "'root' allows at most 0 authorities below it, but the chain has 1"),
    ):
        chain = below(ca(None, "root", **changes))
        assert why in reason(signed(chain), expectation(chain))


def test_another_root_with_the_same_name_is_refused() -> None:
    chain, other = below(ca(None, "root")), ca(None, "root")
    found = reason(signed(chain), expectation(chain, root=other.certificate))
    assert found.startswith("the document's root is 'root' (")
    assert "not the trusted 'root' (" in found


def test_root_alone_is_no_chain() -> None:
    """A document that is signed with the root's key itself: an authority signs no documents."""
    root = ca(None, "root")
    document = sign(stated((root, root)), key=root.private_key)
    assert "the certificate 'root' is an authority's" in reason(document, expectation((root,)))


def test_signature_is_of_the_leaf_not_of_an_authority() -> None:
    chain = authorities()
    document = sign(stated(), key=chain[-2].private_key)
    assert reason(document, expectation()) == "the COSE message's signature does not verify with the signer's key"
    assert public_key_of(chain[-1].certificate) != public_key_of(chain[-2].certificate)


def test_a_certificate_is_verified_once() -> None:
    """Cards show their peers the same ones, and each takes 0.5 ms of the loop."""
    chain = below(ca(None, "root"))
    before = _verify_signature.cache_info().misses
    for _ in range(3):
        verify_untrusted(signed(chain), expected=expectation(chain))
    assert _verify_signature.cache_info().misses == before + 2
