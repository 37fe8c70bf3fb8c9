"""`srd perf` between two hosts, for what it measures: its JSON document, of SRD or of kernel TCP.

Only what is timed is not compared: `checked` runs the same transfer with `--verify` before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from scripts.harness.client_server import python
from scripts.harness.drops import require_none
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, Pair

PORT: Final = 5211
"""Not iperf3's, which runs beside it."""
START_S: Final = 40.0
"""Additional time of the processes: to start, and to make and check their data."""
_BOTH: Final = ("--plain", "--busy-poll")
"""Options that both ends have to have."""
Document = dict[str, Any]


@contextmanager
def running(pair: Pair, what: str, *options: str, bound_s: float, port: int = PORT) -> Iterator[Callable[[], Document]]:
    """Run `srd perf WHAT` to a server of its own during the block; yields a function that waits for its document.

    `bound_s`: how long the measurement takes at most. That raises BenchError if it fails, or takes longer.
    """
    both = [option for option in options if option in _BOTH]
    with TemporaryDirectory(prefix="srd-bench-perf-") as directory, ProcessGroup() as group:
        log = Path(directory, "client.json")
        command = python("srd", "perf", "server", "-J", "--one-off", "-B", pair.receiver, "-p", str(port), *both)
        server = group.start("srd perf server", pair.command(RECEIVER, command))
        group.said(server, "Server listening", bound_s=START_S)
        command = python("srd", "perf", what, pair.receiver, "-p", str(port), "-J", "--logfile", str(log), *options)
        client = group.start(f"srd perf {what}", pair.command(SENDER, command))

        def ended() -> Document:
            try:
                group.ended(client, bound_s=START_S + bound_s)
            except BenchError as error:
                raise BenchError(f"srd perf {what}: {_document(log).get('error', error)}") from None
            if server.status:
                raise server.failure
            return _document(log)

        yield ended


def _document(log: Path) -> Document:
    """Read a document; an empty one if there is none."""
    found: Document = json.loads(log.read_text(encoding="utf-8") or "{}") if log.exists() else {}
    return found


def measure(pair: Pair, what: str, *options: str, bound_s: float) -> Document:
    with running(pair, what, *options, bound_s=bound_s) as ended:
        return ended()


def rows(pair: Pair, what: str, *options: str, bound_s: float) -> list[Document]:
    """Run a sweep; return its rows. Raises BenchError also for a datagram that a host dropped: its buffers count."""
    found: list[Document] = measure(pair, what, *options, bound_s=bound_s)["rows"]
    require_none(sum(row["dropped"] + row["remote_dropped"] for row in found))
    return found
