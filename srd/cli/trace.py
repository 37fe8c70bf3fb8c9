"""`srd trace`: a summary of a trace file, as tables and as a plot."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.percentile import percentile
from netns.base.printable import printable
from netns.base.tables import print_table, table
from srd.cli.progress import rate_text
from srd.qlog.errors import TraceError
from srd.qlog.reader import TraceReader
from srd.qlog.summary import LongestStalls, PeerSummary, ReceivedPath, SentPath, summarise, timeline
from srd.qlog.verdict import verdict


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), help="Also plot the trace, to a .png, .svg or .pdf file."
)
@json_option
def trace(*, file: Path, picture: Path | None, as_json: bool) -> int:
    """Summarise FILE, a trace that --trace of any srd command wrote.

    For every peer: each path's traffic, round-trip times, losses and retransmissions; throughput and losses over time;
    and the longest stalls, which are times without progress while something was outstanding. --plot draws progress,
    window and bytes in flight, round-trip times and losses, with the source ports of the paths that lost most; it needs
    the extra `report` (matplotlib).
    """
    try:
        stream = file.open("rb")
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}; give a file that --trace wrote") from error
    with stream:
        reader = TraceReader(stream, name=str(file))
        peers = summarise(reader.read_untrusted())
    if picture is not None:
        _draw(peers, title=f"{file.name}: {reader.title}", out=picture)
    if as_json:
        rows = [_peer_dict(number, peer) for number, peer in peers.items()]
        print_json({"file": str(file), "title": reader.title, "cut_off": reader.cut_off, "peers": rows})
        return 0
    end = "; cut off: its writer was killed, or had no room" if reader.cut_off else ""
    _print(f"{file}: {reader.title}, {len(peers)} peer(s){end}")
    for number, peer in peers.items():
        _print_peer(number, peer)
    return 0


def _peer_dict(number: int, peer: PeerSummary) -> dict[str, object]:
    """Return what is shown of a peer, for JSON."""
    return {
        "number": number,
        "address": peer.address,
        "incoming": peer.incoming,
        "seconds": round(peer.ended_s - peer.began_s, 6),
        "end": peer.end or None,
        "requests": peer.completed,
        "messages": peer.messages,
        "writes": peer.writes,
        "aborted": peer.aborted,
        "latency_us": _spread(peer.latencies_us),
        "sent": [
            {
                "path": path,
                "bursts": each.bursts,
                "packets": each.packets,
                "bytes": each.payload_bytes,
                "retransmitted": each.retransmitted,
                "lost": each.lost,
                "probes": each.probes,
                "rtt_us": _spread(each.rtt_us),
                "state": each.state,
            }
            for path, each in sorted(peer.sent.items())
        ],
        "received": [
            {
                "path": path,
                "packets": each.packets,
                "bytes": each.payload_bytes,
                "duplicate_bytes": each.duplicate_bytes,
            }
            for path, each in sorted(peer.received.items())
        ],
        "send_stalls": _stalls(peer.send_stalls),
        "receive_stalls": _stalls(peer.receive_stalls),
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    """Return least, median and 99th percentile; None of no values."""
    if not values:
        return None
    return {name: percentile(values, each) for name, each in (("min", 0), ("median", 50), ("p99", 99))}


def _stalls(stalls: LongestStalls) -> list[dict[str, float]]:
    return [{"at_s": round(began_s, 6), "seconds": round(length_s, 6)} for began_s, length_s in stalls.ranked()]


def _print(line: str) -> None:
    click.echo(printable(line))


def _print_peer(number: int, peer: PeerSummary) -> None:
    direction = "from" if peer.incoming else "to"
    seconds = peer.ended_s - peer.began_s
    _print("")
    _print(f"peer {number} {direction} {peer.address}: {seconds:.3f} s; {peer.end or 'not ended in this trace'}")
    if said := verdict(peer):
        print_table(Text(said))
    if peer.sent:
        requests = ", ".join(f"{count} {status}" for status, count in sorted(peer.completed.items())) or "none ended"
        _print(f"requests: {requests}; acks taken: {peer.acks}")
        if peer.latencies_us:
            shown = [f"{percentile(peer.latencies_us, percent) / 1e3:.3f}" for percent in (0, 50, 99)]
            _print(f"latency of those completed with OK: least {shown[0]}, median {shown[1]}, p99 {shown[2]} ms")
        print_table(_sent_table(peer))
    if peer.received:
        received = f"messages received: {peer.messages}, writes: {peer.writes}"
        _print(f"{received}, given up by the other end: {peer.aborted}")
        print_table(_received_table(peer))
    if peer.sent or peer.received:
        print_table(_timeline_table(peer))
    _print_stalls(peer.send_stalls, "without an acknowledgement")
    _print_stalls(peer.receive_stalls, "without new data")


def _sent_table(peer: PeerSummary) -> Table:
    headings = ("path", "bursts", "packets", "MiB", "resent", "lost", "probes", "rtt min", "median", "p99 ms", "state")
    rows = table(*headings, text=("state",))
    for number, path in sorted(peer.sent.items()):
        rows.add_row(str(number), *_sent_cells([path]), _state(path))
    rows.add_section()
    rows.add_row("all", *_sent_cells(list(peer.sent.values())), "")
    return rows


def _sent_cells(paths: list[SentPath]) -> list[str]:
    rtts_us = [rtt_us for path in paths for rtt_us in path.rtt_us]
    rtts = [f"{percentile(rtts_us, percent) / 1e3:.3f}" if rtts_us else "-" for percent in (0, 50, 99)]
    return [
        str(sum(path.bursts for path in paths)),
        str(sum(path.packets for path in paths)),
        _mib(sum(path.payload_bytes for path in paths)),
        str(sum(path.retransmitted for path in paths)),
        str(sum(path.lost for path in paths)),
        str(sum(path.probes for path in paths)),
        *rtts,
    ]


def _state(path: SentPath) -> str:
    changes = f", {path.state_changes} changes" if path.state_changes else ""
    return printable(path.state) + changes


def _received_table(peer: PeerSummary) -> Table:
    rows = table("path", "bursts", "packets", "MiB", "of it again MiB", text=())
    for number, path in sorted(peer.received.items()):
        rows.add_row(str(number), *_received_cells([path]))
    rows.add_section()
    rows.add_row("all", *_received_cells(list(peer.received.values())))
    return rows


def _received_cells(paths: list[ReceivedPath]) -> list[str]:
    return [
        str(sum(path.bursts for path in paths)),
        str(sum(path.packets for path in paths)),
        _mib(sum(path.payload_bytes for path in paths)),
        _mib(sum(path.duplicate_bytes for path in paths)),
    ]


def _timeline_table(peer: PeerSummary) -> Table:
    length_s, parts = timeline(peer)
    rows = table("from s", "acknowledged", "received", "lost: reordering", "timeout", "resent", text=())
    for row in parts:
        rows.add_row(
            f"{row.begin_s:.4f}",
            *(_rate(size_bytes, length_s) for size_bytes in (row.acked_bytes, row.landed_bytes)),
            *map(str, (row.reordered, row.timed_out, row.resent)),
        )
    return rows


def _print_stalls(stalls: LongestStalls, what: str) -> None:
    """Print the longest stalls, if there are any."""
    if ranked := stalls.ranked():
        listed = ", ".join(f"{1e3 * length_s:.3f} ms at {began_s:.4f} s" for began_s, length_s in ranked)
        _print(f"longest times {what}: {listed}")


def _draw(peers: dict[int, PeerSummary], *, title: str, out: Path) -> None:
    try:
        from srd.qlog.plot import plot  # noqa: PLC0415 - matplotlib is optional, and slow to load
    except ImportError as error:
        raise TraceError(
            f"--plot {out}: needs matplotlib ({error}); install it, in the checkout: pip install '.[report]'"
        ) from error
    plot(peers, title=printable(title), out=out)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.2f}"


def _rate(size_bytes: int, seconds: float) -> str:
    return rate_text(size_bytes * 8 / seconds) if size_bytes and seconds > 0 else "-"
