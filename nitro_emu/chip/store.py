"""The chip's directory: its keys, the card's secret, and the lowest version that it boots.

    root.key.pem, root.pem                    the root of trust, whose certificate verifiers pin
    intermediate.key.pem, intermediate.pem    which issues the keys that sign documents
    vendor.pub.pem                            whose manifests are accepted
    sealed.bin                                the card's X25519 private key, encrypted
    state.json                                names, the lowest version, a hash of each file above, and a MAC
    boot.json                                 the log of the last boot

Rules.
1. The directory and its files belong to their user alone; the chip refuses others.
2. A file is replaced as a whole: written beside it, synchronised, renamed.
3. The secret is encrypted with AES-256-GCM under a key that is derived from the root's private key, and bound to the
   vendor's key and the card's name. The MAC's key is derived in the same way, so that a change of any file is found.
4. A directory that is replaced by an older copy of itself is not found: only a counter in hardware does that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from netns.base.files import synchronise, write_whole
from nitro_emu.errors import TrustError
from nitro_emu.trust.key_files import check_private
from nitro_emu.trust.manifest import check_card_name, vendor_fingerprint
from nitro_emu.trust.measure import read_file
from nitro_emu.trust.pki import (
    Authority,
    certificate_pem,
    load_certificate_untrusted,
    load_private_key_untrusted,
    load_public_key_untrusted,
    make_root,
    private_key_pem,
    public_key_of,
    public_key_pem,
)

INTERMEDIATE_DAYS: Final = 10 * 365
MAX_STORE_FILE_BYTES: Final = 1 << 20

ROOT_KEY: Final = "root.key.pem"
ROOT: Final = "root.pem"
INTERMEDIATE_KEY: Final = "intermediate.key.pem"
INTERMEDIATE: Final = "intermediate.pem"
VENDOR: Final = "vendor.pub.pem"
SEALED: Final = "sealed.bin"
STATE: Final = "state.json"
BOOT: Final = "boot.json"

_HASHED: Final = (ROOT_KEY, ROOT, INTERMEDIATE_KEY, INTERMEDIATE, VENDOR, SEALED)
_SEAL_PURPOSE: Final = b"open-srd nitro-chip seal v1"
_MAC_PURPOSE: Final = b"open-srd nitro-chip state v1"
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store has, except for the card's secret."""

    root: Authority
    intermediate: Authority
    vendor: EllipticCurvePublicKey
    card: str
    """The card's name."""

    public_key: bytes
    """The card's, X25519, 32 bytes."""

    minimum_version: int
    """The highest version of a manifest that was booted; lower ones are refused."""

    hashes: Mapping[str, str]
    """SHA-384 of the files, in hexadecimal."""


class ChipStore:
    """A chip's directory, which `create` makes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *, vendor: EllipticCurvePublicKey, card: str, now: datetime) -> Self:
        """Make a chip's keys and directory, which must not exist, or be empty. Raises TrustError."""
        check_card_name(card)
        root = make_root(f"{card} root", now=now)
        intermediate = root.make_intermediate(f"{card} chip", now=now, days=INTERMEDIATE_DAYS, path_length=0)
        secret = X25519PrivateKey.generate()
        files = {
            ROOT_KEY: private_key_pem(root.private_key),
            ROOT: certificate_pem(root.certificate),
            INTERMEDIATE_KEY: private_key_pem(intermediate.private_key),
            INTERMEDIATE: certificate_pem(intermediate.certificate),
            VENDOR: public_key_pem(vendor),
            SEALED: _seal(secret.private_bytes_raw(), root=root.private_key, vendor=vendor, card=card),
        }
        contents = Contents(
            root=root,
            intermediate=intermediate,
            vendor=vendor,
            card=card,
            public_key=secret.public_key().public_bytes_raw(),
            minimum_version=1,
            hashes={name: hashlib.sha384(content).hexdigest() for name, content in files.items()},
        )
        _make_directory(path, {**files, STATE: _state(contents)})
        return cls(path)

    def load(self) -> Contents:
        """Return what the store has, after a check of every file. Raises TrustError, which names the file."""
        self._check_mode(self.path, is_right=stat.S_ISDIR)
        content = {name: self._read(name) for name in (*_HASHED, STATE)}
        root_key = load_private_key_untrusted(content[ROOT_KEY], name=str(self.path / ROOT_KEY))
        fields = self._state_untrusted(content[STATE], root=root_key)
        for name in _HASHED:
            if fields["files"].get(name) != hashlib.sha384(content[name]).hexdigest():
                raise self._damaged(name)
        root = self._authority(content, ROOT, key=root_key)
        intermediate_key = load_private_key_untrusted(content[INTERMEDIATE_KEY], name=INTERMEDIATE_KEY)
        return Contents(
            root=root,
            intermediate=self._authority(content, INTERMEDIATE, key=intermediate_key),
            vendor=load_public_key_untrusted(content[VENDOR], name=VENDOR),
            card=fields["card"],
            public_key=base64.b64decode(fields["public_key"]),
            minimum_version=fields["minimum_version"],
            hashes=fields["files"],
        )

    def unseal_into(self, secret: bytearray, *, contents: Contents) -> None:
        """Write the card's secret into a buffer of 32 bytes. Raises TrustError if it is not this card's or vendor's."""
        sealed = self._read(SEALED)
        nonce, encrypted = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        cipher = AESGCM(_derived(contents.root.private_key, purpose=_SEAL_PURPOSE))
        bound = _bound(vendor=contents.vendor, card=contents.card)
        try:
            cipher.decrypt_into(nonce, encrypted, bound, secret)
        except (InvalidTag, ValueError):
            raise self._damaged(SEALED) from None
        if X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() != contents.public_key:
            raise self._damaged(SEALED)

    def set_minimum_version(self, contents: Contents, *, version: int) -> Contents:
        """Refuse lower versions from now on, and return what the store then has. Raises TrustError: not written."""
        if version <= contents.minimum_version:
            return contents
        after = replace(contents, minimum_version=version)
        self._write(STATE, _state(after))
        return after

    def write_boot(self, record: Mapping[str, Any]) -> None:
        """Keep the record of the last boot. Raises TrustError."""
        self._write(BOOT, json.dumps(record, indent=1).encode() + b"\n")

    def read_boot_untrusted(self) -> dict[str, Any]:
        """Return the record of the last boot. Raises TrustError if there is none, or if it is damaged."""
        try:
            record = json.loads(read_file(self.path / BOOT, max_bytes=MAX_STORE_FILE_BYTES))
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise TrustError(f"{self.path / BOOT} is no record of a boot; boot the card again")
        return record

    # -- files --------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> bytes:
        self._check_mode(self.path / name, is_right=stat.S_ISREG)
        return read_file(self.path / name, max_bytes=MAX_STORE_FILE_BYTES)

    def _check_mode(self, path: Path, *, is_right: Any) -> None:
        try:
            status = path.lstat()
        except OSError as error:
            raise TrustError(f"{path} cannot be read: {error.strerror}; make a chip with: nitro-chip init") from error
        if not is_right(status.st_mode):
            raise TrustError(f"{path} is of another kind of file; make a chip with: nitro-chip init")
        check_private(path, status)

    def _write(self, name: str, content: bytes) -> None:
        try:
            write_whole(self.path / name, content, mode=0o600, synchronised=True)
        except OSError as error:
            raise TrustError(f"{self.path / name} cannot be written: {error.strerror}; make room for it") from error

    def _authority(self, content: Mapping[str, bytes], name: str, *, key: EllipticCurvePrivateKey) -> Authority:
        certificate = load_certificate_untrusted(content[name], name=name)
        if public_key_of(certificate) != key.public_key():
            raise self._damaged(name)
        return Authority(certificate, key)

    def _state_untrusted(self, content: bytes, *, root: EllipticCurvePrivateKey) -> dict[str, Any]:
        """Return the state's fields, whose MAC and form are right. Raises TrustError."""
        try:
            fields = json.loads(content)
            mac = fields.pop("mac")
            is_right = hmac.compare_digest(mac, _mac(fields, root=root)) and _json({**fields, "mac": mac}) == content
        except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
            is_right = False
        if not is_right:
            raise self._damaged(STATE)
        return dict(fields)

    def _damaged(self, name: str) -> TrustError:
        return TrustError(f"the chip's store is damaged: {name} was changed; restore {self.path}, or make a new chip")


def _make_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a directory with these files, at once. Raises TrustError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))  # of mode 0700
        try:
            for name, content in files.items():
                write_whole(made / name, content, mode=0o600, synchronised=True)
            made.rename(path)
        except BaseException:
            rmtree(made, ignore_errors=True)
            raise
        synchronise(path.parent)
    except OSError as error:
        remedy = "it has files; name a new directory" if path.exists() else "name another directory"
        raise TrustError(f"{path} cannot be made: {error.strerror}; {remedy}") from error


# -- what is derived from the root's key ------------------------------------------------------------------------


def _derived(root: EllipticCurvePrivateKey, *, purpose: bytes) -> bytes:
    scalar = root.private_numbers().private_value.to_bytes(48)
    return HKDF(algorithm=SHA384(), length=32, salt=None, info=purpose).derive(scalar)


def _bound(*, vendor: EllipticCurvePublicKey, card: str) -> bytes:
    """Return what the secret is encrypted for, as additional data."""
    return vendor_fingerprint(vendor) + card.encode()


def _seal(secret: bytes, *, root: EllipticCurvePrivateKey, vendor: EllipticCurvePublicKey, card: str) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    cipher = AESGCM(_derived(root, purpose=_SEAL_PURPOSE))
    return nonce + cipher.encrypt(nonce, secret, _bound(vendor=vendor, card=card))


def _state(contents: Contents) -> bytes:
    """Return the state's file."""
    fields = {
        "card": contents.card,
        "public_key": base64.b64encode(contents.public_key).decode(),
        "minimum_version": contents.minimum_version,
        "files": dict(contents.hashes),
    }
    return _json({**fields, "mac": _mac(fields, root=contents.root.private_key)})


def _mac(fields: Mapping[str, Any], *, root: EllipticCurvePrivateKey) -> str:
    return hmac.digest(_derived(root, purpose=_MAC_PURPOSE), _json(fields), "sha384").hex()


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"
