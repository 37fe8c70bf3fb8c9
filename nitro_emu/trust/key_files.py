"""Files of P-384 keys in PEM: the private one is its user's alone (mode 0600), the public one is for everyone."""

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

from netns.base.files import write_whole
from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import read_file
from nitro_emu.trust.pki import load_private_key_untrusted, load_public_key_untrusted, private_key_pem, public_key_pem

MAX_FILE_BYTES: Final = 64 << 10


def public_path(path: Path) -> Path:
    """Return where the public key is that belongs to a private key's file: KEY.pub.pem beside KEY.pem."""
    return path.with_name(f"{path.name.removesuffix('.pem')}.pub.pem")


def make_key_files(path: Path) -> Path:
    """Make a private key's file and its public key's; return the latter. Raises TrustError, also if one exists."""
    key = generate_private_key(SECP384R1())
    public = public_path(path)
    for existing in (path, public):
        if os.path.lexists(existing):
            raise TrustError(f"{existing}: exists; remove it first, or give another name")
    _write(path, private_key_pem(key), mode=0o600)
    try:
        _write(public, public_key_pem(key.public_key()), mode=0o644)
    except TrustError:
        path.unlink()
        raise
    return public


def _write(path: Path, content: bytes, *, mode: int) -> None:
    try:
        write_whole(path, content, mode=mode, exclusive=True, synchronised=True)
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror}; give another name") from error


def read_private_key(path: Path) -> EllipticCurvePrivateKey:
    """Return the private key in a file. Raises TrustError, also if others may read the file."""
    content = read_file(path, max_bytes=MAX_FILE_BYTES)
    check_private(path, path.stat())
    return load_private_key_untrusted(content, name=str(path))


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise TrustError if others may use a file, or it is another user's."""
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise TrustError(f"{path}: others may use it (mode {mode:o}); run: chmod go-rwx {path}")
    if status.st_uid not in {0, os.geteuid()}:
        raise TrustError(f"{path}: belongs to another user (uid {status.st_uid}); run: chown $USER {path}")


def read_public_key(path: Path) -> EllipticCurvePublicKey:
    """Return the public key in a file. Raises TrustError."""
    content = read_file(path, max_bytes=MAX_FILE_BYTES)
    if b"PRIVATE KEY" in content:
        raise TrustError(f"{path}: has a private key; give the public one, {public_path(path).name}")
    return load_public_key_untrusted(content, name=str(path))
