"""nitro_emu.chip.nsm: the requests of a booted card, as the Nitro Secure Module answers them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from nitro_emu.chip.chip import Chip
from nitro_emu.chip.messages import MAX_RESPONSE_BYTES, encode
from nitro_emu.chip.nsm import NsmError
from nitro_emu.errors import TrustError
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


def ask(chip: Chip, name: str, **fields: Any) -> dict[str, Any]:
    return dict(chip.nsm.answer_untrusted(name, fields) or {})


def refused(chip: Chip, name: str, **fields: Any) -> str:
    with pytest.raises(NsmError) as error:
        chip.nsm.answer_untrusted(name, fields)
    return error.value.code.value


def attested(chip: Chip, **fields: Any) -> bytes:
    document = ask(chip, "Attestation", **fields)["document"]
    assert isinstance(document, bytes)
    return document


def verified(rig: Rig, document: bytes, **expected: Any) -> AttestationDocument:
    root = rig.store.load().root.certificate
    return verify_untrusted(document, expected=Expectation(root=root, **{"at": rig.clock.time, **expected}))


def leaf_of(rig: Rig, chip: Chip) -> x509.Certificate:
    return x509.load_der_x509_certificate(verified(rig, attested(chip)).certificate)


# -- registers --------------------------------------------------------------------------------------------------


def test_describe_pcr(chip: Chip) -> None:
    assert ask(chip, "DescribePCR", index=0) == {"lock": True, "data": chip.pcrs[0]}
    assert ask(chip, "DescribePCR", index=15) == {"lock": True, "data": bytes(48)}
    assert ask(chip, "DescribePCR", index=16) == {"lock": False, "data": bytes(48)}
    assert refused(chip, "DescribePCR", index=32) == "InvalidIndex"
    assert refused(chip, "DescribePCR", index=1 << 62) == "InvalidIndex"


@pytest.mark.parametrize("fields", [{}, {"index": -1}, {"index": "0"}, {"index": True}, {"index": 0, "more": 1}])
def test_malformed_arguments(chip: Chip, fields: dict[str, Any]) -> None:
    for name in ("DescribePCR", "LockPCR"):
        assert refused(chip, name, **fields) == "InvalidArgument"


def test_extend_pcr(chip: Chip) -> None:
    data = ask(chip, "ExtendPCR", index=31, data=b"data")["data"]
    assert ask(chip, "DescribePCR", index=31) == {"lock": False, "data": data}
    for index in range(16):
        assert refused(chip, "ExtendPCR", index=index, data=b"data") == "ReadOnlyIndex"
    assert refused(chip, "ExtendPCR", index=32, data=b"data") == "InvalidIndex"
    assert refused(chip, "ExtendPCR", index=16, data=b"") == "InvalidArgument"
    assert refused(chip, "ExtendPCR", index=16, data="text") == "InvalidArgument"
    assert refused(chip, "ExtendPCR", index=16, data=bytes(513)) == "InputTooLarge"
    assert refused(chip, "ExtendPCR", index=16) == "InvalidArgument"


def test_lock_pcr(rig: Rig, chip: Chip) -> None:
    ask(chip, "ExtendPCR", index=20, data=b"data")
    assert set(verified(rig, attested(chip)).pcrs) == set(range(16))
    assert ask(chip, "LockPCR", index=20) == {}
    assert refused(chip, "ExtendPCR", index=20, data=b"data") == "ReadOnlyIndex"
    assert refused(chip, "LockPCR", index=20) == "ReadOnlyIndex"
    assert refused(chip, "LockPCR", index=32) == "InvalidIndex"
    assert set(verified(rig, attested(chip)).pcrs) == {*range(16), 20}


def test_lock_pcrs(rig: Rig, chip: Chip) -> None:
    assert ask(chip, "LockPCRs", range=18) == {}
    assert ask(chip, "DescribePCR", index=17)["lock"] is True
    assert ask(chip, "DescribePCR", index=18)["lock"] is False
    assert refused(chip, "LockPCRs", range=33) == "InvalidIndex"
    assert refused(chip, "LockPCRs", range=None) == "InvalidArgument"
    ask(chip, "LockPCRs", range=32)
    assert len(verified(rig, attested(chip)).pcrs) == 32


def test_describe_nsm(chip: Chip) -> None:
    found = ask(chip, "DescribeNSM")
    assert found["module_id"].startswith("card-a-chip")
    assert (found["max_pcrs"], found["locked_pcrs"], found["digest"]) == (32, list(range(16)), "SHA384")
    assert (found["version_major"], found["version_minor"], found["version_patch"]) == (1, 0, 0)
    assert refused(chip, "DescribeNSM", more=1) == "InvalidArgument"


def test_get_random(chip: Chip) -> None:
    one, two = (ask(chip, "GetRandom")["random"] for _ in range(2))
    assert len(one) == len(two) == 256
    assert one != two
    assert refused(chip, "GetRandom", count=5) == "InvalidArgument"


def test_unknown_requests(chip: Chip) -> None:
    assert refused(chip, "Fly") == "InvalidOperation"


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
    ask(chip, "LockPCRs", range=32)
    document = attested(chip, nonce=bytes(1024), user_data=bytes(1024), public_key=b"p" * 1024)
    assert len(encode(1 << 62, "Attestation", {"document": document})) <= MAX_RESPONSE_BYTES
    assert verified(rig, document).nonce == bytes(1024)


def test_fields_of_documents_are_bounded(chip: Chip) -> None:
    for name in ("nonce", "user_data", "public_key"):
        assert refused(chip, "Attestation", **{name: bytes(1025)}) == "InputTooLarge"
        assert refused(chip, "Attestation", **{name: "text"}) == "InvalidArgument"
    assert refused(chip, "Attestation", more=b"") == "InvalidArgument"


def test_another_chips_root_does_not_verify_it(rig: Rig, chip: Chip, tmp_path: Any) -> None:
    other = Rig(directory=tmp_path / "other", vendor=rig.vendor)
    with pytest.raises(TrustError):
        verified(other, attested(chip))


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


def test_a_document_is_valid_as_long_as_its_leaf(rig: Rig, chip: Chip) -> None:
    document = attested(chip)
    verified(rig, document, at=START + timedelta(hours=2, minutes=59))
    for wrong in (timedelta(hours=3, seconds=1), timedelta(days=1), -timedelta(days=1)):
        with pytest.raises(TrustError):
            verified(rig, document, at=START + wrong)


def test_every_boot_has_a_key_of_its_own_for_documents(rig: Rig, chip: Chip) -> None:
    first = leaf_of(rig, chip)
    chip.boot(rig.files)
    assert leaf_of(rig, chip) != first
