"""rsync over ssh, with an sshd of its own: files to the server, and back from it.

The sshd has its own configuration, host key and port, and lets in only a key that is made for the example; nothing of
the system's ssh is read or changed. As root it runs with a /run of its own, where it wants an empty directory.
Checked: the files that came back are those that were sent, by SHA-256.
"""

from __future__ import annotations

import time
from typing import Final

from examples.tunnel.hosts import Figures, Pair, TunnelHost, main, require

PORT: Final = 2222
FILES: Final = 20
TOTAL_BYTES: Final = 100_000_000
_SSHD_CONFIG: Final = """
Port {port}
ListenAddress {address}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
"""
_SSHD: Final = """
sshd=$(PATH="$PATH:/usr/sbin" command -v sshd)
[ "$(id -u)" -eq 0 ] || exec "$sshd" -D -e -f "$1"
exec unshare --mount sh -euc 'mount -t tmpfs tmpfs /run; mkdir /run/sshd; exec "$0" -D -e -f "$1"' "$sshd" "$1"
"""
_MAKE: Final = """
mkdir "$1"
i=0
while [ $i -lt "$2" ]; do head -c "$3" /dev/urandom > "$1/$i"; i=$((i + 1)); done
"""
_DIGESTS: Final = 'cd "$1" && sha256sum *'
_KEY: Final = 'ssh-keygen -q -t ed25519 -N "" -f "$1"; cat "$1.pub"'


def run(pair: Pair, *, files: int = FILES, total_bytes: int = TOTAL_BYTES) -> list[Figures]:
    """Copy there and back; return a row for each."""
    server, client, address = pair.server, pair.client, pair.address
    with server.directory() as there, client.directory() as here:
        server.write(f"{there}/sshd_config", _SSHD_CONFIG.format(directory=there, address=address, port=PORT))
        server.write(f"{there}/authorized_keys", client.shell(_KEY, f"{here}/key"))
        host = f"[{address}]:{PORT}"
        client.write(f"{here}/known_hosts", f"{host} {server.shell(_KEY, f'{there}/host_key')}")
        client.shell(_MAKE, f"{here}/sent", str(files), str(total_bytes // files))
        remote = f"[{address}]:{there}/copy/" if ":" in address else f"{address}:{there}/copy/"
        with server.serving("sh", "-euc", _SSHD, "sh", f"{there}/sshd_config", port=PORT):
            user = server.run("id", "--user", "--name").strip()
            ssh = f"ssh -F none -p {PORT} -l {user} -i {here}/key -o IdentitiesOnly=yes -o BatchMode=yes"
            ssh += f" -o UserKnownHostsFile={here}/known_hosts -o GlobalKnownHostsFile=none"
            seconds = {
                name: _rsync(client, source=source, target=target, ssh=ssh)
                for name, source, target in (
                    ("to the server", f"{here}/sent/", remote),
                    ("from the server", remote, f"{here}/back/"),
                )
            }
        came_back = client.shell(_DIGESTS, f"{here}/back") == client.shell(_DIGESTS, f"{here}/sent")
        require(came_back, "rsync: other files came back than were sent")
    return [
        {
            "direction": name,
            "files": files,
            "mbytes": total_bytes / 1e6,
            "seconds": taken,
            "mbps": total_bytes / taken * 8e-6,
        }
        for name, taken in seconds.items()
    ]


def _rsync(client: TunnelHost, *, source: str, target: str, ssh: str) -> float:
    """Copy; return the seconds that it took, the connection's start included."""
    began_at = time.monotonic()
    client.run("rsync", "--recursive", "--whole-file", "--rsh", ssh, source, target)
    return time.monotonic() - began_at


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
