"""Trust on first use: the public keys of the hosts that were connected to, as in SSH's known_hosts.

A line is "HOST:PORT srd-x25519 BASE64". A host that is not in the file is trusted the first time, and its key added
once the handshake has shown that it holds it; with another key it is refused from then on. Who has this user's own key
is this user, and is not recorded.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from srd.proto.errors import UsageError
from srd.secure.keys import fingerprint, parse_public, public_text


class KnownHosts:
    """A file of hosts and their keys. It is read again for each host, as other processes add to it."""

    def __init__(self, path: Path, *, own_key: bytes) -> None:
        """Use the file at `path`, which need not exist; `own_key`: this user's public key."""
        self._path = path
        self._own_key = own_key

    def check(self, host: str, key: bytes) -> str | None:
        """Return why a key of `host` (HOST:PORT) is not accepted, or None. Raises UsageError for an unreadable file."""
        known = self._find(host)
        if known is None or key in (known, self._own_key):
            return None
        return (
            f"{host} has another key than before ({fingerprint(key)}, not {fingerprint(known)}): either it has a new "
            f"one, then remove its line from {self._path}, or it is not that host"
        )

    def add(self, host: str, key: bytes) -> bool:
        """Note the key of a host, and return whether it was not known yet.

        Raises UsageError if the file cannot be written.
        """
        if key == self._own_key or self._find(host) is not None:
            return False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "a") as file:  # noqa: PTH123 - a descriptor
                fcntl.flock(file, fcntl.LOCK_EX)  # two processes may have seen the host for the first time
                if self._find(host) is None:
                    file.write(f"{host} {public_text(key)}\n")
                    file.flush()
                return True
        except OSError as error:
            raise UsageError(
                f"{self._path}: cannot be written: {error.strerror}; name another known-hosts file"
            ) from error

    def _find(self, host: str) -> bytes | None:
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(
                f"{self._path}: cannot be read: {error.strerror}; name another known-hosts file"
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: is no text; repair it, or name another known-hosts file") from error
        for line in lines:
            name, _, rest = line.strip().partition(" ")
            if name == host:
                return parse_public(rest)
        return None
