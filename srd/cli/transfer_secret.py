"""The secret in the ids of transfers: the same in every `srd send` of a user, so that one can go on with another's."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from srd.secure.keys import directory

_BYTES = 32


def transfer_secret() -> bytes:
    """Return this user's secret, made at the first use. Where it cannot be kept, it is of this process alone."""
    path = directory() / "transfer_secret"
    for _ in range(2):
        try:
            secret = path.read_bytes()
        except OSError:
            secret = b""
        if len(secret) == _BYTES:
            return secret
        _make(path)
    return secrets.token_bytes(_BYTES)


def _make(path: Path) -> None:
    """Make the file, complete or not at all; leave one that another process has made meanwhile."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, secrets.token_bytes(_BYTES))
        finally:
            os.close(fd)
        os.link(partial, path)
    except OSError:
        return
    finally:
        partial.unlink(missing_ok=True)
