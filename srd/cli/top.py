"""`srd top`: the peers and paths of a running daemon, live."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from netns.base.addresses import host_port_text
from netns.base.options import interval_option, json_lines_option
from netns.base.printable import printable
from netns.base.tables import console, show_screens, table
from srd.cli.metrics import UnreachableError, ask
from srd.cli.options import metrics_argument
from srd.cli.progress import rate_text
from srd.errors import SrdError
from srd.metrics.sample import PathSample, PeerSample, Sample, parse_untrusted
from srd.metrics.serving import PEERS

_ACTIVE: Final = "active"
_WIDE: Final = 100
"""Columns of a terminal with room for the longest addresses."""
_ADDRESS: Final = 21
"""Characters of a line of an address on a narrower one: those of any of IPv4."""


@click.command()
@metrics_argument
@interval_option
@click.option(
    "--count", type=click.IntRange(min=1), help="Stop after so many samples.  [default: 1 without a terminal]"
)
@click.option("--each-path", "with_paths", is_flag=True, help="Show each path, too.")
@json_lines_option
def top(*, address: tuple[str, int], interval_s: float, count: int | None, with_paths: bool, as_json: bool) -> int:
    """Show the peers of a running srd, by its --metrics HOST[:PORT]: rates, round trips, windows, losses and paths.

    Ends with that process, on Ctrl-C, or after --count samples. Rates are of the last interval. The first 64 peers are
    shown; `flight` is what is in flight, and `paths` how many carry data, and how many do not.
    """
    terminal = console()
    if not terminal.is_terminal:
        count = count or 1
    try:
        if as_json:
            _print_json(address, interval_s=interval_s, count=count)
        else:
            pairs = _pairs(address, interval_s=interval_s, count=count)
            shown = (screen(*pair, with_paths=with_paths, columns=terminal.width) for pair in pairs)
            show_screens(shown, terminal=terminal)
    except EndedAfterwardsError:
        click.echo(f"srd top: {host_port_text(*address)}: has ended", err=True)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    return 0


class EndedAfterwardsError(SrdError):
    """It has answered before, and does no more."""


def _answers(address: tuple[str, int], *, interval_s: float, count: int | None) -> Iterator[str]:
    """Yield `count` answers after a first one, with a pause before each. Raises EndedAfterwardsError."""
    yield ask(address, PEERS)
    while count is None or count > 0:
        time.sleep(interval_s)
        try:
            yield ask(address, PEERS)
        except UnreachableError as error:
            raise EndedAfterwardsError(str(error)) from error
        count = None if count is None else count - 1


def _print_json(address: tuple[str, int], *, interval_s: float, count: int | None) -> None:
    answers = _answers(address, interval_s=interval_s, count=None if count is None else count - 1)
    for answer in answers:
        parse_untrusted(answer)
        click.echo(json.dumps(json.loads(answer)))


def _pairs(address: tuple[str, int], *, interval_s: float, count: int | None) -> Iterator[tuple[Sample, Sample]]:
    """Yield each sample with the one before."""
    before: Sample | None = None
    for answer in _answers(address, interval_s=interval_s, count=count):
        sample = parse_untrusted(answer)
        if before is not None:
            yield before, sample
        before = sample


def screen(before: Sample, now: Sample, *, with_paths: bool, columns: int) -> Group:
    """Return what is shown of two samples, complete on a terminal of 80 columns."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    earlier = {peer.number: peer for peer in before.peers}
    parts: list[Text | Table] = [Text(printable(headline(before, now, seconds=seconds)))]
    parts.append(_peers_table(now.peers, earlier, seconds=seconds, columns=columns))
    if with_paths:
        for peer in now.peers:
            known = earlier.get(peer.number)
            paths = {path.path: path for path in known.paths} if known else {}
            parts += [Text(f"\npaths of {printable(peer.address)}"), _paths_table(peer, paths, seconds=seconds)]
    return Group(*parts)


def headline(before: Sample, now: Sample, *, seconds: float) -> str:
    """Return the endpoint's line."""
    sent, received = (
        rate_text(8 * max(getattr(now, name) - getattr(before, name), 0) / seconds) for name in ("tx_bytes", "rx_bytes")
    )
    unlisted = f", {now.peer_count - len(now.peers)} not shown" if now.peer_count > len(now.peers) else ""
    dropped = f"; {now.rx_drops} datagrams dropped here" if now.rx_drops else ""
    return f"{now.title}: {now.peer_count} peer(s){unlisted}; sent {sent}, received {received}{dropped}"


def _peers_table(peers: Sequence[PeerSample], earlier: dict[int, PeerSample], *, seconds: float, columns: int) -> Table:
    rows = _narrow_table(
        "peer",
        "sent\nbit/s",
        "received\nbit/s",
        "rtt\nms",
        "window\nKiB",
        "flight\nKiB",
        "resent\nper s",
        "resent\nin all",
        "paths",
    )
    for peer in peers:
        known = earlier.get(peer.number, peer)
        rows.add_row(
            _folded(printable(peer.address), columns=columns),
            _rate(peer.tx_bytes - known.tx_bytes, seconds),
            _rate(peer.rx_bytes - known.rx_bytes, seconds),
            _milliseconds(peer.smoothed_rtt_s),
            f"{peer.cwnd_bytes / 1024:.0f}",
            f"{peer.inflight_bytes / 1024:.0f}",
            f"{max(peer.retrans_pkts - known.retrans_pkts, 0) / seconds:.0f}",
            str(peer.retrans_pkts),
            path_states(peer.paths),
        )
    return rows


def _narrow_table(*headings: str) -> Table:
    """Return a table with one space between columns; text is in the first and the last."""
    rows = table(*headings, text=headings[-1:])
    rows.collapse_padding = True
    return rows


def _folded(address: str, *, columns: int) -> str:
    """Return an address in lines that leave room for the figures."""
    if columns >= _WIDE:
        return address
    return "\n".join(address[begin : begin + _ADDRESS] for begin in range(0, len(address), _ADDRESS))


def _rate(size_bytes: int, seconds: float) -> str:
    """Return a rate in bit/s with a decimal prefix, in five characters: 342M, 4.72G."""
    bits_per_s = 8 * max(size_bytes, 0) / seconds
    for prefix in ("", "k", "M"):
        if bits_per_s < 999.5:
            return f"{bits_per_s:.3g}{prefix}"
        bits_per_s /= 1000
    return f"{bits_per_s:.3g}G" if bits_per_s < 999.5 else f"{bits_per_s:.0f}G"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def path_states(paths: Sequence[PathSample]) -> str:
    """Return how many paths there are, and how many in which state, unless all are active."""
    others: dict[str, int] = {}
    for path in paths:
        if path.state != _ACTIVE:
            others[path.state] = others.get(path.state, 0) + 1
    return ", ".join([str(len(paths) - sum(others.values())), *(f"{count} {state}" for state, count in others.items())])


def _paths_table(peer: PeerSample, earlier: dict[int, PathSample], *, seconds: float) -> Table:
    rows = _narrow_table("path", "sent\nbit/s", "rtt\nms", "flight\nKiB", "resent", "lost", "timeouts", "state")
    for path in peer.paths:
        known = earlier.get(path.path, path)
        rows.add_row(
            str(path.path),
            _rate(path.bytes - known.bytes, seconds),
            "-" if path.smoothed_rtt_s is None else _milliseconds(path.smoothed_rtt_s),
            f"{path.inflight_bytes / 1024:.0f}",
            str(path.retransmitted),
            str(path.lost),
            str(path.timeouts),
            printable(path.state),
        )
    return rows
