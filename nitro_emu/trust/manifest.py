"""The manifest of a card: what its vendor says the card may run, signed.

A COSE_Sign1 message over a CBOR map: the card's name, a version, the measurements of image and configuration, and the
hash of each file, so that a refusal can name the file. A chip accepts no version below the highest that it has booted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from netns.base.names import NAME_RULE, is_name
from netns.base.naming import named
from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import dumps, loads_untrusted
from nitro_emu.trust.cose import parse_untrusted, sign1, verify1_untrusted
from nitro_emu.trust.measure import (
    DIGEST_BYTES,
    MAX_CONFIGURATION_BYTES,
    MAX_FILES,
    ZERO,
    extend,
    file_sha384,
    image_digest,
    image_files,
)

KIND: Final = "nitro-card-manifest"
MAX_MANIFEST_BYTES: Final = 4 << 20
"""10,000 files with names of 300 bytes take 3.5 MiB."""

MAX_VERSION: Final = (1 << 63) - 1
MAX_TIME_S: Final = (1 << 40) - 1

PCR_IMAGE: Final = 0
PCR_ENVIRONMENT: Final = 1
PCR_CONFIGURATION: Final = 2
PCR_VERSION: Final = 3
PCR_CARD: Final = 4
PCR_VENDOR: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a card may run. `check` says whether the fields are within their bounds."""

    name: str
    """Of the card that it is for."""

    version: int
    """1 or more; a later one has a greater number."""

    image: bytes
    """Measurement of the software, 48 bytes."""

    configuration: bytes
    """SHA-384 of the settings' file, 48 bytes."""

    issued_at_s: int
    """Seconds since 1970."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-384 of each file of the image by its name; empty: a refusal cannot name the file that differs."""

    def check(self) -> None:
        """Raise TrustError if a field is out of its bounds, or if the files do not make up the image."""
        check_card_name(self.name)
        if not 1 <= self.version <= MAX_VERSION:
            raise TrustError(f"version: {self.version} is not between 1 and {MAX_VERSION}; count from 1")
        for name, digest in (("image", self.image), ("configuration", self.configuration), *self.files.items()):
            if len(digest) != DIGEST_BYTES:
                raise TrustError(f"{name:.100}: its hash has {len(digest)} bytes; SHA-384 has {DIGEST_BYTES}")
        if not 0 <= self.issued_at_s <= MAX_TIME_S:
            raise TrustError(f"issued_at_s: {self.issued_at_s} is no time in seconds since 1970")
        if len(self.files) > MAX_FILES:
            raise TrustError(f"files: {len(self.files)} are listed; an image has at most {MAX_FILES}")
        if self.files and image_digest(self.files) != self.image:
            raise TrustError("files: those that are listed do not make up the image; sign the manifest again")

    def pcrs(self, *, vendor: EllipticCurvePublicKey) -> dict[int, bytes]:
        """Return the registers that a card with this manifest attests; not that of its environment."""
        return {index: extend(ZERO, digest) for index, digest in measurements(self, vendor=vendor).items()}


def measurements(manifest: Manifest, *, vendor: EllipticCurvePublicKey) -> dict[int, bytes]:
    """Return what a boot with this manifest adds to each register, except to that of the environment."""
    return {
        PCR_IMAGE: manifest.image,
        PCR_CONFIGURATION: manifest.configuration,
        PCR_VERSION: version_digest(manifest.version),
        PCR_CARD: name_digest(manifest.name),
        PCR_VENDOR: vendor_fingerprint(vendor),
    }


def version_digest(version: int) -> bytes:
    """Return the measurement of a version: SHA-384 of the number as 8 bytes, big endian."""
    return hashlib.sha384(version.to_bytes(8)).digest()


def name_digest(name: str) -> bytes:
    """Return the measurement of a card's name."""
    return hashlib.sha384(name.encode()).digest()


def vendor_fingerprint(key: EllipticCurvePublicKey) -> bytes:
    """Return the measurement of a vendor's key: SHA-384 of its SubjectPublicKeyInfo in DER."""
    return hashlib.sha384(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def check_card_name(name: str) -> None:
    """Raise TrustError for what is no name of a card."""
    if not is_name(name):
        raise TrustError(f"name: {name!r:.100} is no card's name; {NAME_RULE}")


def make_manifest(*, name: str, version: int, image_root: Path, configuration: Path, issued_at_s: int) -> Manifest:
    """Measure an image and the settings' file, and return their manifest. Raises TrustError."""
    files = image_files(image_root)
    manifest = Manifest(
        name=name,
        version=version,
        image=image_digest(files),
        configuration=file_sha384(configuration, max_bytes=MAX_CONFIGURATION_BYTES),
        issued_at_s=issued_at_s,
        files=files,
    )
    manifest.check()
    return manifest


def first_difference(expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> str | None:
    """Return what differs first between the files of two images, such as "srd/engine.py was changed"; None: nothing."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} was added"
        if expected[name] != found[name]:
            return f"{name} was changed"
    return None


def sign_manifest(manifest: Manifest, *, key: EllipticCurvePrivateKey) -> bytes:
    """Return a manifest as its file has it, signed with the vendor's key (P-384). Raises TrustError as `check` does."""
    manifest.check()
    payload = {
        "kind": KIND,
        "name": manifest.name,
        "version": manifest.version,
        "image": manifest.image,
        "configuration": manifest.configuration,
        "issued_at_s": manifest.issued_at_s,
        "vendor": vendor_fingerprint(key.public_key()),
        "files": dict(manifest.files),
    }
    return sign1(dumps(payload), key=key)


def open_manifest_untrusted(data: bytes, *, key: EllipticCurvePublicKey) -> Manifest:
    """Return the manifest in a file, whose signature was verified with the vendor's key. Raises TrustError."""
    try:
        payload = verify1_untrusted(data, key=key, max_bytes=MAX_MANIFEST_BYTES)
    except TrustError as error:
        raise _refusal_untrusted(data, key=key, reason=error) from error
    with named("the manifest is signed, but ", TrustError):
        return _manifest_untrusted(_fields_untrusted(payload))


def _refusal_untrusted(data: bytes, *, key: EllipticCurvePublicKey, reason: TrustError) -> TrustError:
    """Return why a manifest was refused. It may say that another vendor signed it, which nobody has verified."""
    try:
        vendor = _fields_untrusted(parse_untrusted(data, max_bytes=MAX_MANIFEST_BYTES).payload).get("vendor")
    except TrustError:
        vendor = None
    ours = vendor_fingerprint(key)
    if isinstance(vendor, bytes) and len(vendor) == DIGEST_BYTES and vendor != ours:
        return TrustError(
            f"the manifest says that another vendor signed it ({vendor.hex()[:16]}, this card's is {ours.hex()[:16]});"
            " get one of this card's vendor"
        )
    return TrustError(f"the manifest is not as its vendor signed it: {reason}")


def _fields_untrusted(payload: bytes) -> dict[str, Any]:
    fields = loads_untrusted(payload, name="its content", max_bytes=MAX_MANIFEST_BYTES)
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise TrustError(f"it is of another kind; a card needs a {KIND}")
    return fields


def _manifest_untrusted(fields: dict[str, Any]) -> Manifest:
    """Return the manifest in a map. Raises TrustError for a field that is missing, unknown, or of another type."""
    for name, kind in _FIELDS.items():
        value = fields.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TrustError(f"{name}: {value!r:.100} is no {kind.__name__}; it is of another version")
    if unknown := fields.keys() - _FIELDS.keys():
        raise TrustError(f"{min(map(str, unknown))!r:.100}: no such field; it is of another version")
    for name, digest in fields["files"].items():
        if not isinstance(name, str) or not isinstance(digest, bytes):
            raise TrustError(f"files: {name!r:.100} has no hash; it is of another version")
    manifest = Manifest(**{name: fields[name] for name in _FIELDS if name not in {"kind", "vendor"}})
    manifest.check()
    return manifest


_FIELDS: Final[Mapping[str, type]] = {
    "kind": str,
    "name": str,
    "version": int,
    "image": bytes,
    "configuration": bytes,
    "issued_at_s": int,
    "vendor": bytes,
    "files": dict,
}
