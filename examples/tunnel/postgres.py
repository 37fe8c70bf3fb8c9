"""PostgreSQL: pgbench with 8 clients, and COPY of a table to the server and back, on a cluster of its own.

The cluster has one user, with a random password, and listens at the given address only.
Checked: the server's history has all transactions, none failed, and the rows that COPY brings back are those that it
took there.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from typing import Final

from examples.tunnel.hosts import Figures, Pair, main, require

PORT: Final = 5433
TRANSACTIONS: Final = 4000
ROWS: Final = 500_000
CLIENTS: Final = 8
USER: Final = "bench"
DATABASE: Final = "postgres"
_PATH: Final = 'PATH="$PATH:$(echo /usr/lib/postgresql/*/bin | tr " " :)"; '
"""Where Debian has the server's programs, and pgbench."""
_AS_USER: Final = '[ "$(id -u)" -ne 0 ] || set -- setpriv --reuid nobody --regid nogroup --clear-groups "$@"; '
"""PostgreSQL refuses to run as root."""
_INIT: Final = """
cat > "$1/password"
[ "$(id -u)" -ne 0 ] || chown nobody:nogroup "$1" "$1/password"
data=$1/data hba="host all $2 all scram-sha-256"
set -- initdb -D "$data" -U "$2" --auth scram-sha-256 --pwfile "$1/password" --no-sync --encoding UTF8 --locale C
"""
_INIT_END: Final = '"$@"; echo "$hba" >> "$data/pg_hba.conf"'
_SETTINGS: Final = ("fsync=off", "shared_buffers=32MB", "max_connections=50", "unix_socket_directories=")
_AS_CLIENT: Final = 'export PGPASSFILE="$1"; shift; exec "$@"'
_ROWS: Final = """
seq 1 "$1" | awk '{ printf "%d\\t%s-%d\\n", $1, "a row of some length, which is number", $1 * 7919 }' > "$2"
"""


@dataclass(frozen=True, slots=True)
class PostgresClient:
    """What programs of PostgreSQL's need on the client's host."""

    pair: Pair
    directory: str
    """On the client's host."""

    def run(self, program: str, *arguments: str) -> str:
        """Run a program, connected to the server."""
        where = ("-h", self.pair.address, "-p", str(PORT), "-U", USER)
        pass_file = f"{self.directory}/password"
        return self.pair.client.shell(_PATH + _AS_CLIENT, pass_file, program, *arguments, *where, DATABASE)

    def psql(self, command: str) -> str:
        """Run one statement of SQL, or one command of psql's."""
        return self.run("psql", "--no-psqlrc", "-qAt", "-c", command).strip()


def run(pair: Pair, *, transactions: int = TRANSACTIONS, rows: int = ROWS) -> list[Figures]:
    """Run pgbench, with a multiple of CLIENTS transactions, and COPY; return a row for each."""
    password, server, client = secrets.token_hex(), pair.server, pair.client
    with server.directory() as there, client.directory() as here:
        server.shell(_PATH + _INIT + _AS_USER + _INIT_END, there, USER, given=password)
        client.shell('umask 077; cat > "$1"', f"{here}/password", given=f"*:*:*:*:{password}")
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        postgres = ("postgres", "-D", f"{there}/data", "-h", pair.address, "-p", str(PORT), *settings)
        with server.serving("sh", "-euc", f'{_PATH}{_AS_USER}exec "$@"', "sh", *postgres, port=PORT, end_by="INT"):
            connected = PostgresClient(pair, here)
            return [_pgbench(connected, transactions=transactions), *_copy(connected, rows=rows)]


def _pgbench(client: PostgresClient, *, transactions: int) -> Figures:
    client.run("pgbench", "-i", "-q", "-s", "1")
    report = client.run("pgbench", "-c", str(CLIENTS), "-t", str(transactions // CLIENTS), "-n")
    done = int(_found(r"transactions actually processed: (\d+)/", report))
    counted = int(client.psql("SELECT count(*) FROM pgbench_history"))
    require(
        counted == done == transactions, f"pgbench: {done} of {transactions} transactions, the server has {counted}"
    )
    require(_found(r"failed transactions: (\d+)", report) == "0", "pgbench: transactions failed")
    per_s, ms_each = _found(r"tps = ([\d.]+)", report), _found(r"latency average = ([\d.]+) ms", report)
    return {"test": "transactions", "count": done, "per_s": float(per_s), "ms_each": float(ms_each)}


def _copy(client: PostgresClient, *, rows: int) -> list[Figures]:
    sent, back = f"{client.directory}/sent", f"{client.directory}/back"
    client.pair.client.shell(_ROWS, str(rows), sent)
    client.psql("CREATE TABLE copied (number int, words text)")
    found = [
        _copied("rows to the server", command=rf"\copy copied FROM '{sent}'", client=client, rows=rows),
        _copied("rows from the server", command=rf"\copy copied TO '{back}'", client=client, rows=rows),
    ]
    differs = client.pair.client.shell('cmp "$1" "$2" || true', sent, back)
    require(not differs, f"COPY: other rows came back: {differs.strip()}")
    return found


def _copied(test: str, *, command: str, client: PostgresClient, rows: int) -> Figures:
    began_at = time.monotonic()
    client.psql(command)
    seconds = time.monotonic() - began_at
    return {"test": test, "count": rows, "per_s": rows / seconds, "ms_each": 1e3 * seconds / rows}


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    require(match, f"pgbench: its report lacks {pattern}")
    return match.group(1) if match else ""


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
