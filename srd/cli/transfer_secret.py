"""The secret in the ids of transfers: the same in every `srd send` of a user, so that one can go on with another's."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from netns.base.files import write_whole
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
    """Make the file; leave one that another process has made meanwhile."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, secrets.token_bytes(_BYTES), mode=0o600, exclusive=True)
