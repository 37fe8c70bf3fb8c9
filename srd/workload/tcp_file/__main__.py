"""`python -m srd.workload.tcp_file`; see the package's docstring."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from netns.base.options import HostPort
from srd.errors import SrdError
from srd.perf.tcp_socket import CUBIC, make_socket
from srd.workload.tcp_file.errors import TransferError
from srd.workload.tcp_file.receive import receive_file
from srd.workload.tcp_file.send import Stopped, read_source, send_file

DIRECTORY = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise Stopped


@click.group()
def main() -> None:
    """One file over kernel TCP or MPTCP."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)


@main.command()
@click.option("--listen", required=True, type=HostPort(example_port=19870), help="Port 0: the kernel's choice.")
@click.option("--output", required=True, type=DIRECTORY, help="Directory to put the file in.")
@click.option("--algorithm", default=CUBIC, show_default=True, help="Congestion control.")
@click.option("--mptcp", is_flag=True, help="Accept MPTCP.")
def receive(*, listen: tuple[str, int], output: Path, algorithm: str, mptcp: bool) -> None:
    """Receive one file."""
    with make_socket(algorithm=algorithm, mptcp=mptcp) as listener:
        try:
            listener.bind(listen)
        except OSError as error:
            raise TransferError(f"{listen[0]}:{listen[1]}: {error.strerror}") from None
        receive_file(listener, directory=output)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("address", type=HostPort(example_port=19870))
@click.option("--algorithm", default=CUBIC, show_default=True, help="Congestion control.")
@click.option("--mptcp", is_flag=True, help="Use MPTCP.")
@click.option("--bind", metavar="ADDRESS", help="Our own address, for the first (sub)flow.")
def send(*, file: Path, address: tuple[str, int], algorithm: str, mptcp: bool, bind: str | None) -> None:
    """Send one file."""
    source = read_source(file)
    with make_socket(algorithm=algorithm, mptcp=mptcp) as sock:
        if bind is not None:
            sock.bind((bind, 0))
        send_file(sock, source, host=address[0], port=address[1])


def run() -> int:
    """Run the tool and return its exit status."""
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except (SrdError, OSError) as error:
        print(f"tcp_file: {error}", file=sys.stderr)
        return 1
    except Stopped:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
