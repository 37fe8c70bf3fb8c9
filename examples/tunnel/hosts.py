"""Two hosts, reached by a command's prefix; programs on them, and the command line of all examples.

A host is what precedes a command so that it runs there: nothing (this host), `srd-lab exec h2 --` (a host of a lab),
`ip netns exec NAME`, `ssh USER@HOST`. All that an example does on a host goes through such commands, files included.

A server ends with its example, however that ends. Its wrapper reads from a pipe that only the example holds, and ends
the server when the pipe is closed: by the example, or by the kernel if the example is killed; ssh passes this on.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

READY_S: Final = 60.0
END_S: Final = 30.0
RUN_S: Final = 300.0
"""Longer than any command here takes, on a network that works. The other two are generous, too, for busy machines."""
_POLL_S: Final = 0.05
_LIFELINE: Final = """
exec 3<&0
signal=$1; shift
"$@" </dev/null 3<&- & server=$!
{ cat <&3 >/dev/null; kill -s "$signal" $server 2>/dev/null; } &
exec 3<&-
wait $server
"""

Figures = Mapping[str, float | str]
"""What an example has found: a column of its table each."""


class ExampleError(Exception):
    """A program failed, or its result is wrong."""


@dataclass(frozen=True, slots=True)
class TunnelHost:
    """A place where commands run."""

    prefix: tuple[str, ...] = ()

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` there."""
        if self.prefix and Path(self.prefix[0]).name == "ssh":  # joins its arguments, for the shell at the other end
            return [*self.prefix, shlex.join(argv)]
        return [*self.prefix, *argv]

    def run(self, *argv: str, given: str | None = None, timeout_s: float = RUN_S) -> str:
        """Run a command; return its output. `given`: its input. Raises ExampleError if it fails."""
        try:
            done = subprocess.run(
                self.command(argv), input=given or "", capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise ExampleError(f"{argv[0]}: not done within {timeout_s:g} s") from None
        if done.returncode:
            raise ExampleError(f"{argv[0]}: status {done.returncode}: {_reason(done.stderr, done.stdout)}")
        return done.stdout

    def shell(self, script: str, *arguments: str, given: str | None = None) -> str:
        """Run a script of sh(1), which has the arguments as $1, $2 ..."""
        return self.run("sh", "-euc", script, "sh", *arguments, given=given)

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        self.shell('cat > "$1"', path, given=text)

    @contextmanager
    def directory(self) -> Iterator[str]:
        """Have an empty directory during the block."""
        path = self.run("mktemp", "--directory", "--tmpdir", "tunnel-example.XXXXXXXX").strip()
        try:
            self.run("chmod", "755", path)  # servers that begin as root read it as somebody else
            yield path
        finally:
            self.run("rm", "-rf", path)

    @contextmanager
    def serving(self, *argv: str, port: int, end_by: str = "TERM") -> Iterator[None]:
        """Run a server during the block, which begins when something listens on the TCP port. Raises ExampleError."""
        process = subprocess.Popen(
            self.command(["sh", "-c", _LIFELINE, "sh", end_by, *argv]),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self._await_listener(port, process=process, name=argv[0])
            yield
        finally:
            _end(process)

    def _await_listener(self, port: int, *, process: subprocess.Popen[str], name: str) -> None:
        give_up_at = time.monotonic() + READY_S
        while not self.run("ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = :{port}").strip():
            if process.poll() is not None:
                _, errors = process.communicate()
                raise ExampleError(f"{name}: status {process.returncode}: {_reason(errors)}")
            if time.monotonic() >= give_up_at:
                raise ExampleError(f"{name}: does not listen on port {port} after {READY_S:g} s")
            time.sleep(_POLL_S)


HERE: Final = TunnelHost()


@dataclass(frozen=True, slots=True)
class Pair:
    """Where an example runs: its server's host and its client's."""

    server: TunnelHost
    client: TunnelHost
    address: str
    """The server's, by which the client reaches it: what lies between the two depends on it."""


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=END_S)  # closes its input
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _reason(*outputs: str) -> str:
    """Return the last line of the first output that has one; lines without a word do not count."""
    said = ([line for line in output.splitlines() if any(map(str.isalnum, line))] for output in outputs)
    return next((lines[-1].strip() for lines in said if lines), "it printed nothing")


def require(condition: object, reason: str) -> None:
    """Raise ExampleError with the reason unless the condition holds."""
    if not condition:
        raise ExampleError(reason)


Run = Callable[[Pair], Sequence[Figures]]
"""Runs an example; returns the rows of its table."""


def table(rows: Sequence[Figures]) -> Table:
    """Return the rows as a table; counts are exact, other numbers have four significant digits."""
    shown = Table(box=None, header_style="", pad_edge=False)
    for name in rows[0]:
        shown.add_column(name.replace("_", " "), justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    return shown


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def main(run: Run, *, summary: str) -> None:
    """Run an example as a command, at each of the addresses that are given; exit with 1 if its result is wrong."""

    @click.command(help=summary, context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--server", metavar="PREFIX", default="", help="What runs a command on the server's host.")
    @click.option("--client", metavar="PREFIX", default="", help="What runs a command on the client's host.")
    @click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
    def command(server: str, client: str, addresses: tuple[str, ...]) -> None:
        rows: list[Figures] = []
        for address in addresses:
            try:
                found = run(
                    Pair(TunnelHost(tuple(shlex.split(server))), TunnelHost(tuple(shlex.split(client))), address)
                )
            except ExampleError as error:
                click.echo(f"{address}: {error}", err=True)
                sys.exit(1)
            rows += [{"address": address, **each} for each in found]
        Console().print(table(rows))

    command()
