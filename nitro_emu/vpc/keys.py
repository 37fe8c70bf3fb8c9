"""The control plane's key: P-384, in PEM. The private key's file is its user's alone; cards have the public one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)

from nitro_emu.errors import TrustError, VpcError
from nitro_emu.trust.pki import load_private_key_untrusted, load_public_key_untrusted, private_key_pem, public_key_pem

MAX_FILE_BYTES: Final = 64 << 10


def public_path(path: Path) -> Path:
    """Return where the public key is that belongs to a private key's file: KEY.pub.pem beside KEY.pem."""
    return path.with_name(f"{path.name.removesuffix('.pem')}.pub.pem")


def make_key(path: Path) -> Path:
    """Make a private key's file (mode 0600) and its public key's; return the latter. Raises VpcError if one exists."""
    key = generate_private_key(SECP384R1())
    public = public_path(path)
    for existing in (path, public):
        if os.path.lexists(existing):
            raise VpcError(f"{existing}: exists; remove it first, or give another name")
    _write(path, private_key_pem(key), mode=0o600)
    try:
        _write(public, public_key_pem(key.public_key()), mode=0o644)
    except VpcError:
        path.unlink()
        raise
    return public


def _write(path: Path, content: bytes, *, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
    except OSError as error:
        raise VpcError(f"{path}: cannot be written: {error.strerror}; give another name") from None


def read_private_key(path: Path) -> EllipticCurvePrivateKey:
    """Return the private key in a file. Raises VpcError, also if others may read it."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                mode = f"mode {status.st_mode & 0o777:o}"
                raise VpcError(f"{path}: others may read or write it ({mode}); run: chmod go-rwx {path}")
            if stat.S_ISREG(status.st_mode) and status.st_uid not in {0, os.geteuid()}:
                raise VpcError(f"{path}: belongs to another user (uid {status.st_uid}); run: chown $USER {path}")
            content = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise VpcError(f"{path}: cannot be read: {error.strerror}; make one with nitro-vpc make-key {path}") from None
    try:
        return load_private_key_untrusted(content, name=str(path))
    except TrustError as error:
        raise VpcError(f"{error}; make one with nitro-vpc make-key") from None


def read_public_key(path: Path) -> EllipticCurvePublicKey:
    """Return the public key in a file, by which a card knows its control plane. Raises VpcError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise VpcError(f"{path}: cannot be read: {error.strerror}; name what nitro-vpc make-key wrote") from None
    try:
        return load_public_key_untrusted(content, name=str(path))
    except TrustError as error:
        raise VpcError(f"{error}; name the .pub.pem file that nitro-vpc make-key wrote") from None
