"""Trust on first use: the public keys of the hosts that were connected to, as in SSH's known_hosts.

1. A line is "HOST:PORT srd-x25519 BASE64"; empty lines and those with # are comments. A line that is neither refuses
   every host: it may be the one that was meant.
2. A host that is not in the file is trusted the first time, and its key added once the handshake has shown that it
   holds it; with another key it is refused from then on.
3. Who has this user's own key is this user, unless another key is known of the host; it is not recorded.
4. Hosts are compared in one spelling: lower case, no dot at the end, addresses as RFC 5952 writes them.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from pathlib import Path

from srd.proto.base.errors import UsageError
from srd.secure.keys import fingerprint, parse_public, public_text, trusted_lines


class KnownHosts:
    """A file of hosts and their keys. It is read again for each host, as other processes add to it."""

    def __init__(self, path: Path, *, own_key: bytes) -> None:
        """Use the file at `path`, which need not exist; `own_key`: this user's public key."""
        self._path = path
        self._own_key = own_key

    def check(self, host: str, key: bytes) -> str | None:
        """Return why a key of `host` (HOST:PORT) is not accepted, or None. Raises UsageError for an unreadable file."""
        known = self._find(host)
        if known is None or key == known:
            return None
        return (
            f"has another key than before ({fingerprint(key)}, not {fingerprint(known)}): either it has a new "
            f"one, then remove its line from {self._path}, or it is not that host"
        )

    def add(self, host: str, key: bytes) -> bool:
        """Note the key of a host, and return whether it was not known yet.

        Raises UsageError if the file cannot be written, or if another key was added meanwhile.
        """
        if key in (self._own_key, self._find(host)):
            return False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "a") as file:  # noqa: PTH123 - a descriptor
                fcntl.flock(file, fcntl.LOCK_EX)  # two connections may have seen the host for the first time
                if (reason := self.check(host, key)) is not None:
                    raise UsageError(f"{host}: {reason}")
                if is_new := self._find(host) is None:
                    file.write(f"{_spelled(host)} {public_text(key)}\n")
                    file.flush()
                return is_new
        except OSError as error:
            raise UsageError(
                f"{self._path}: cannot be written: {error.strerror}; name another known-hosts file"
            ) from error

    def _find(self, host: str) -> bytes | None:
        """Return the key of a host, if it is known. Raises UsageError for a file that cannot be read."""
        try:
            lines = trusted_lines(self._path)
        except FileNotFoundError:
            return None
        for number, line in lines:
            name, *rest = line.split(maxsplit=1)
            try:
                key = parse_public("".join(rest))
            except UsageError as error:
                raise UsageError(f"{self._path}, line {number}: {error}; repair it, or remove it") from error
            if _spelled(name) == _spelled(host):
                return key
        return None


def _spelled(host: str) -> str:
    """Return a host and port as they are compared."""
    name, sign, port = host.rpartition(":")
    bare = name.removeprefix("[").removesuffix("]")
    address, percent, zone = bare.partition("%")
    try:
        bare = f"{ipaddress.ip_address(address)}{percent}{zone}"
    except ValueError:
        bare = bare.lower().rstrip(".")
    return f"[{bare}]{sign}{port}" if ":" in bare else f"{bare}{sign}{port}"
