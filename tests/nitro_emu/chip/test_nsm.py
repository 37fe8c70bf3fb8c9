"""nitro_emu.chip.nsm: documents of a booted card, as the Nitro Secure Module gives them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from nitro_emu.chip.chip import Chip
from nitro_emu.chip.messages import MAX_RESPONSE_BYTES, encode
from nitro_emu.chip.nsm import NsmError
from nitro_emu.trust.documents import AttestationDocument
from nitro_emu.trust.manifest import open_manifest_untrusted
from nitro_emu.trust.verify import Expectation, verify_untrusted
from tests.nitro_emu.chip.chips import START, Rig


@pytest.fixture
def chip(rig: Rig) -> Chip:
    """A chip whose card runs."""
    chip = rig.chip()
    assert chip.boot(rig.files)
    return chip


def refused(chip: Chip, **fields: Any) -> str:
    with pytest.raises(NsmError) as error:
        chip.nsm.attest_untrusted(fields)
    return error.value.code.value


def attested(chip: Chip, **fields: Any) -> bytes:
    document = chip.nsm.attest_untrusted(fields)["document"]
    assert isinstance(document, bytes)
    return document


def verified(rig: Rig, document: bytes, **expected: Any) -> AttestationDocument:
    root = rig.store.load().root.certificate
    return verify_untrusted(document, expected=Expectation(root=root, **{"at": rig.clock.time, **expected}))


def leaf_of(rig: Rig, chip: Chip) -> x509.Certificate:
    return x509.load_der_x509_certificate(verified(rig, attested(chip)).certificate)


# -- documents --------------------------------------------------------------------------------------------------


def test_a_document_verifies(rig: Rig, chip: Chip) -> None:
    manifest = open_manifest_untrusted(rig.manifest.read_bytes(), key=rig.vendor.public_key())
    fields = {"nonce": b"nonce", "user_data": b"data", "public_key": rig.store.load().public_key}
    document = verified(rig, attested(chip, **fields), pcrs=manifest.pcrs(vendor=rig.vendor.public_key()), **fields)
    assert document.pcrs == chip.pcrs
    assert document.timestamp_ms == int(START.timestamp() * 1000)
    assert len(document.cabundle) == 2


@pytest.mark.parametrize("fields", [{}, {"nonce": None}, {"nonce": b"", "user_data": b"", "public_key": b""}])
def test_what_is_not_given_is_null(rig: Rig, chip: Chip, fields: dict[str, Any]) -> None:
    document = verified(rig, attested(chip, **fields))
    assert (document.nonce, document.user_data, document.public_key) == (None, None, None)


def test_the_largest_document_fits(rig: Rig, chip: Chip) -> None:
    document = attested(chip, nonce=bytes(1024), user_data=bytes(1024), public_key=b"p" * 1024)
    assert len(encode(1 << 62, "Attestation", {"document": document})) <= MAX_RESPONSE_BYTES
    assert verified(rig, document).nonce == bytes(1024)


def test_fields_of_documents_are_bounded(chip: Chip) -> None:
    for name in ("nonce", "user_data", "public_key"):
        assert refused(chip, **{name: bytes(1025)}) == "InputTooLarge"
        assert refused(chip, **{name: "text"}) == "InvalidArgument"
    assert refused(chip, more=b"") == "InvalidArgument"


def test_a_leaf_is_used_again_while_it_is_valid_for_an_hour(rig: Rig, chip: Chip) -> None:
    first = leaf_of(rig, chip)
    assert first.not_valid_after_utc - first.not_valid_before_utc == timedelta(hours=3)
    rig.clock.time = START + timedelta(hours=2)
    assert leaf_of(rig, chip) == first
    rig.clock.time = START + timedelta(hours=2, seconds=1)
    second = leaf_of(rig, chip)
    assert second != first
    rig.clock.time = START + timedelta(hours=2)
    assert leaf_of(rig, chip) != second, "it is not valid yet, as the clock was set back"


def test_every_boot_has_a_key_of_its_own_for_documents(rig: Rig, chip: Chip) -> None:
    first = leaf_of(rig, chip)
    chip.boot(rig.files)
    assert leaf_of(rig, chip) != first
