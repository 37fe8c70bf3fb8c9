"""Static keys (X25519), how they are written, and the files that they are kept in.

A key file has one line, "srd-x25519-private" and the key in base64; a public key is written "srd-x25519" and the key,
and a comment may follow. A private key may also be in PEM, as openssl makes it. Files with secrets must belong to their
user alone (mode 0600), as SSH demands.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from netns.base.files import write_whole
from srd.proto.base.errors import UsageError
from srd.proto.base.security import PUBLIC_KEY_BYTES

PRIVATE_WORD, PUBLIC_WORD = "srd-x25519-private", "srd-x25519"
PSK_BYTES: Final = 32
SCRYPT_SALT: Final = b"open-srd psk v1"
"""Both ends must compute the same key from a passphrase alone, so the salt is the same everywhere."""
SCRYPT_COST: Final = 1 << 17
"""RFC 7914's n: 128 MiB and about half a second for each guess (OWASP's recommendation)."""
MAX_FILE_BYTES: Final = 16 << 20
"""200,000 keys. What is longer is refused, and never read in part: it would lack keys, and known hosts, silently."""
_PEM: Final = re.compile(r"-----BEGIN ((?:\w+ )?PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
FINGERPRINT_CHARACTERS: Final = 43
"""Length of a fingerprint."""


def directory() -> Path:
    """Return where a user's keys are: $SRD_HOME, or srd in $XDG_CONFIG_HOME, which is by default ~/.config."""
    if home := os.environ.get("SRD_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "srd"


def fingerprint(public_key: bytes) -> str:
    """Return how people compare a public key: its SHA-256 hash in base64 for URLs, 43 characters."""
    return base64.urlsafe_b64encode(hashlib.sha256(public_key).digest()).decode().rstrip("=")


def public_text(public_key: bytes) -> str:
    """Return a public key as it is written into files."""
    return f"{PUBLIC_WORD} {base64.b64encode(public_key).decode()}"


def parse_public(text: str) -> bytes:
    """Return the public key of a line. Raises UsageError, which does not quote it: it may be a secret."""
    words = text.split()
    if words and words[0] == PRIVATE_WORD:
        raise UsageError(f"is a private key, not a public one: give what srd keygen prints, {PUBLIC_WORD} BASE64")
    if len(words) < 2 or words[0] != PUBLIC_WORD:
        raise UsageError(f"is no public key, which has the form {PUBLIC_WORD} BASE64; see srd keygen")
    return _decode(words[1])


def _decode(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != PUBLIC_KEY_BYTES:
        raise UsageError(f"has no key of {PUBLIC_KEY_BYTES} bytes in base64; see srd keygen")
    return key


def read_secret(path: Path) -> str:
    """Return the content of a file with a secret. Raises UsageError: not readable, or by others, too."""
    try:
        with path.open("rb") as file:
            _check_mode(file, path, others_may_not="read it", mask=0o077)
            return _read(file, path).decode()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text, so it has no key; see srd keygen") from error


def _read(file: IO[bytes], path: Path) -> bytes:
    """Return all of a file. Raises UsageError for one that is too long, such as a device without an end."""
    content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: is longer than {MAX_FILE_BYTES >> 20} MiB; divide it, or name another file")
    return content


def _check_mode(file: IO[bytes], path: Path, *, others_may_not: str, mask: int) -> None:
    """Raise UsageError unless a file is of this user (or root) alone. What is not a regular file is not checked."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_mode & mask:
        mode = f"mode {status.st_mode & 0o777:o}"
        raise UsageError(f"{path}: others may {others_may_not} ({mode}); run: chmod go-rwx {path}")
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{path}: belongs to another user (uid {status.st_uid}); run: chown $USER {path}")


def trusted_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a file of public keys, with their numbers; not empty ones, and those with #.

    Raises FileNotFoundError, and UsageError for any other reason, also if others may write to it.
    """
    try:
        with path.open("rb") as file:
            _check_mode(file, path, others_may_not="write to it", mask=0o022)
            lines = _read(file, path).decode().splitlines()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name another file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text; repair it, or name another file") from error
    return [
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")
    ]


def load(path: Path) -> X25519PrivateKey:
    """Return the key in a file. Raises UsageError."""
    return private_key_in(read_secret(path), path)


def private_key_in(text: str, path: Path) -> X25519PrivateKey:
    """Return the key in a file's text: in this module's form, or in PEM (PKCS 8). Raises UsageError."""
    if (pem := _PEM.search(text)) is not None:
        return _pem_key(pem.group(), path)
    words = text.split()
    if len(words) < 2 or words[0] != PRIVATE_WORD:
        raise UsageError(f"{path}: has no private key; make one with: srd keygen {path}")
    try:
        return X25519PrivateKey.from_private_bytes(_decode(words[1]))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _pem_key(text: str, path: Path) -> X25519PrivateKey:
    try:
        key = load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: its private key cannot be read: {error}") from error
    if not isinstance(key, X25519PrivateKey):
        raise UsageError(f"{path}: has a private key that is not of X25519; see docs/security.md")
    return key


def create(path: Path) -> X25519PrivateKey:
    """Make a key and its file, which must not exist. Raises UsageError."""
    key = X25519PrivateKey.generate()
    _write_secret(path, f"{PRIVATE_WORD} {base64.b64encode(key.private_bytes_raw()).decode()}\n")
    return key


def create_psk(path: Path) -> None:
    """Make a symmetric key and its file, which must not exist. Raises UsageError."""
    _write_secret(path, base64.b64encode(os.urandom(PSK_BYTES)).decode() + "\n")


def _write_secret(path: Path, text: str) -> None:
    """Write a file that must not exist, for its user alone. Raises UsageError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, text.encode(), mode=0o600, exclusive=True)
    except OSError as error:
        if os.path.lexists(path):
            raise UsageError(f"{path}: exists; remove it first, or give another name") from error
        raise UsageError(f"{path}: cannot be written: {error.strerror}; set SRD_HOME to another directory") from error


def user_key_path() -> Path:
    """Return the file of this user's key."""
    return directory() / "key"


def user_key() -> X25519PrivateKey:
    """Return this user's key; it is made at the first use. Raises UsageError."""
    path = user_key_path()
    if not path.exists():
        try:
            return create(path)
        except UsageError:
            if not path.exists():  # else another process has made it meanwhile
                raise
    return load(path)


def read_authorized(path: Path) -> frozenset[bytes]:
    """Return the public keys in a file, one a line; empty lines and those with # are skipped. Raises UsageError."""
    try:
        lines = trusted_lines(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; make it with a line for each public key") from error
    keys = set()
    for number, line in lines:
        try:
            keys.add(parse_public(line))
        except UsageError as invalid:
            raise UsageError(f"{path}, line {number}: {invalid}") from invalid
    return frozenset(keys)


def read_psk(path: Path) -> bytes:
    """Return the symmetric key in a file: 32 bytes in base64 or hexadecimal, or a passphrase. Raises UsageError."""
    text = read_secret(path).strip()
    if len(text) == 2 * PSK_BYTES:
        with suppress(ValueError):
            return bytes.fromhex(text)
    with suppress(UsageError):
        return _decode(text)
    return psk_of(text)


def psk_of(passphrase: str) -> bytes:
    """Return the symmetric key of a passphrase (scrypt, RFC 7914). Raises UsageError for one that is too short."""
    if len(passphrase) < 12:
        raise UsageError("a passphrase of less than 12 characters is guessed; use a longer one, or 32 random bytes")
    return Scrypt(salt=SCRYPT_SALT, length=PSK_BYTES, n=SCRYPT_COST, r=8, p=1).derive(passphrase.encode())
