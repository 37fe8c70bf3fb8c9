"""nitro_emu.trust.manifest: what is signed, and every way in which it does not hold."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import dumps, loads_untrusted
from nitro_emu.trust.cose import parse_untrusted, sign1
from nitro_emu.trust.manifest import (
    MAX_VERSION,
    Manifest,
    first_difference,
    make_manifest,
    open_manifest_untrusted,
    sign_manifest,
    vendor_fingerprint,
)
from nitro_emu.trust.measure import extend, image_digest, image_sha384

KEY = generate_private_key(SECP384R1())
OTHER = generate_private_key(SECP384R1())
FILES = {"srd/a.py": b"a" * 48, "srd/b.py": b"b" * 48}
MANIFEST = Manifest(
    name="card-a", version=7, image=image_digest(FILES), configuration=b"c" * 48, issued_at_s=1_700_000_000, files=FILES
)


digests = st.binary(min_size=48, max_size=48)


@given(
    name=st.from_regex(r"\A[a-z0-9_-]{1,32}\Z"),
    version=st.integers(1, MAX_VERSION),
    files=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), digests, max_size=5),
    configuration=digests,
)
def test_every_manifest_survives(name: str, version: int, files: dict[str, bytes], configuration: bytes) -> None:
    manifest = Manifest(
        name=name,
        version=version,
        image=image_digest(files),
        configuration=configuration,
        issued_at_s=0,
        files=files,
    )
    assert open_manifest_untrusted(sign_manifest(manifest, key=KEY), key=KEY.public_key()) == manifest


def test_made_from_files(tmp_path: Path) -> None:
    (tmp_path / "srd").mkdir()
    (tmp_path / "srd" / "a.py").write_text("1")
    (tmp_path / "card.yaml").write_text("x")
    made = make_manifest(
        name="card-a", version=1, image_root=tmp_path, configuration=tmp_path / "card.yaml", issued_at_s=5
    )
    assert made.image == image_sha384(tmp_path)
    assert made.configuration == hashlib.sha384(b"x").digest()
    assert set(made.files) == {"srd/a.py"}


def test_pcrs_are_known_beforehand() -> None:
    pcrs = MANIFEST.pcrs(vendor=KEY.public_key())
    assert set(pcrs) == {0, 2, 3, 4, 8}
    assert pcrs[0] == extend(bytes(48), MANIFEST.image)
    assert pcrs[3] == extend(bytes(48), hashlib.sha384((7).to_bytes(8)).digest())
    assert pcrs[8] == extend(bytes(48), vendor_fingerprint(KEY.public_key()))


@given(st.binary(max_size=400))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError):
        open_manifest_untrusted(data, key=KEY.public_key())


def test_another_vendor_is_named() -> None:
    with pytest.raises(TrustError, match="another vendor signed it") as refused:
        open_manifest_untrusted(sign_manifest(MANIFEST, key=OTHER), key=KEY.public_key())
    assert vendor_fingerprint(OTHER.public_key()).hex()[:16] in str(refused.value)
    assert vendor_fingerprint(KEY.public_key()).hex()[:16] in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "Card A"}, "no card's name"),
        ({"name": ""}, "no card's name"),
        ({"version": 0}, "version: 0 is not between"),
        ({"version": MAX_VERSION + 1}, "is not between"),
        ({"image": b"i" * 47}, "image: its hash has 47 bytes"),
        ({"image": b"i" * 48}, "do not make up the image"),
        ({"configuration": b""}, "configuration: its hash has 0 bytes"),
        ({"issued_at_s": -1}, "no time in seconds"),
        ({"files": {"srd/a.py": b"short"}}, r"srd/a\.py: its hash has 5 bytes"),
        ({"files": {"srd/a.py": b"a" * 48}}, "do not make up the image"),
    ],
)
def test_fields_out_of_bounds_are_neither_signed_nor_opened(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(TrustError, match=reason):
        sign_manifest(replace(MANIFEST, **changed), key=KEY)
    with pytest.raises(TrustError, match=f"the manifest is signed, but .*{reason}"):
        open_manifest_untrusted(resigned(changed), key=KEY.public_key())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"kind": "nitro-map"}, "of another kind"),
        ({"version": "7"}, "version: '7' is no int"),
        ({"version": True}, "version: True is no int"),
        ({"name": None}, "name: None is no str"),
        ({"files": [1]}, r"files: \[1\] is no dict"),
        ({"files": {1: b"a" * 48}}, "files: 1 has no hash"),
        ({"files": {"a": "a"}}, "files: 'a' has no hash"),
        ({"more": 1}, "'more': no such field"),
    ],
)
def test_other_forms_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(TrustError, match=reason):
        open_manifest_untrusted(resigned(changed), key=KEY.public_key())


def resigned(changed: dict[str, Any]) -> bytes:
    """Return a manifest with other fields, and with the vendor's signature."""
    fields = loads_untrusted(parse_untrusted(sign_manifest(MANIFEST, key=KEY)).payload, name="manifest")
    assert isinstance(fields, dict)
    return sign1(dumps({**fields, **changed}), key=KEY)


def test_first_difference_names_the_file() -> None:
    assert first_difference(FILES, FILES) is None
    assert first_difference(FILES, {**FILES, "srd/b.py": b"x" * 48}) == "srd/b.py was changed"
    assert first_difference(FILES, {**FILES, "srd/aa.py": b"x" * 48}) == "srd/aa.py was added"
    assert first_difference(FILES, {"srd/b.py": b"x" * 48}) == "srd/a.py is missing"
