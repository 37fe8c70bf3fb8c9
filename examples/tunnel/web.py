"""curl fetches 10,000 objects from nginx, over 16 connections, and from Python's http.server, each on a new connection.

Checked: every object arrived, and its SHA-256 is that of the server's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from examples.tunnel.hosts import Figures, Pair, TunnelHost, main, require

PORT: Final = 8080
OBJECTS: Final = 10_000
PARALLEL: Final = 16
SERVERS: Final = ("nginx", "http.server")
_MAKE: Final = """
import pathlib, random, sys
directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
directory.mkdir()
draws = random.Random(1)
for number in range(count):
    (directory / str(number)).write_bytes(draws.randbytes(int(draws.paretovariate(1.2) * 512) % 200_000 + 1))
"""
"""Many small objects and a few large ones, as on the web."""
_NGINX: Final = """
daemon off;
pid {directory}/nginx.pid;
error_log stderr;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 100000;
  server {{ listen {listen}:{port}; root {directory}/objects; }}
}}
"""
_DIGESTS: Final = 'cd "$1" && find . -type f -exec sha256sum {} + | sort'


def run(pair: Pair, *, objects: int = OBJECTS, programs: Sequence[str] = SERVERS) -> list[Figures]:
    """Fetch all objects from each server program; return a row for each."""
    server, address = pair.server, pair.address
    with server.directory() as directory:
        server.run("python3", "-c", _MAKE, f"{directory}/objects", str(objects))
        digests = server.shell(_DIGESTS, f"{directory}/objects")
        host = f"[{address}]" if ":" in address else address
        server.write(f"{directory}/nginx.conf", _NGINX.format(directory=directory, listen=host, port=PORT))
        commands = {
            "nginx": ("nginx", "-e", "stderr", "-c", f"{directory}/nginx.conf"),
            "http.server": (
                *("python3", "-m", "http.server", str(PORT)),
                *("--bind", address, "--directory", f"{directory}/objects"),
            ),
        }
        found = []
        for name in programs:
            with server.serving(*commands[name], port=PORT):
                found.append(_fetch(pair.client, host=host, name=name, objects=objects, digests=digests))
        return found


def _fetch(client: TunnelHost, *, host: str, name: str, objects: int, digests: str) -> Figures:
    with client.directory() as directory:
        url = f"http://{host}:{PORT}/[0-{objects - 1}]"
        options = ("--parallel", "--parallel-max", str(PARALLEL), "--silent", "--show-error", "--fail")
        began_at = time.monotonic()
        client.run("curl", *options, "--noproxy", "*", "--output", f"{directory}/#1", url)
        seconds = time.monotonic() - began_at
        fetched = client.shell(_DIGESTS, directory)
    require(fetched == digests, f"curl, {name}: {_differing(fetched, digests=digests)} of {objects} objects are wrong")
    return {"server": name, "objects": objects, "seconds": seconds, "objects_per_s": objects / seconds}


def _differing(fetched: str, *, digests: str) -> int:
    return len(set(digests.splitlines()) - set(fetched.splitlines()))


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
