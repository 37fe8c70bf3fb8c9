"""Plots a trace: progress, window and bytes in flight, RTT of each path, and losses, over one time axis.

Few colours, each with a key beside its panel, never over the data: the paths that lost most have one each, with their
source ports, and all others are grey; of peers, the MAX_PEERS that carried most are shown. Only this module needs
Matplotlib, which the extra `report` installs; the text summary does not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srd.qlog.errors import TraceError
from srd.qlog.summary import PeerSummary
from srd.qlog.verdict import path_name, verdict, worst_paths

_MIB: Final = 2**20
SENT: Final = "#0072B2"
RECEIVED: Final = "#009E73"
STALL: Final = "#D55E00"
OTHERS: Final = "#9a9a9a"
INK: Final = "#333333"
PATHS: Final = ("#D55E00", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
"""These are from Okabe and Ito's palette, which colour-blind readers can distinguish."""
MAX_PEERS: Final = 4
_DASHES: Final = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))
"""Of each peer."""
_MARKS: Final = {"reordering": "|", "timeout": "x"}
_WRAP: Final = 125

Key = tuple[int, int]
"""Number of a peer, and of a path."""


def plot(peers: Mapping[int, PeerSummary], *, title: str, out: Path) -> None:
    """Plot peers to `out`; its suffix selects the format. Raises TraceError if it cannot be written."""
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "text.parse_math": False}):
        figure = Figure(figsize=(11, 11.5), layout="constrained", facecolor="white")
        formats = figure.canvas.get_supported_filetypes()
        if out.suffix[1:].lower() not in formats:
            raise TraceError(f"--plot {out}: the name ends in none of .{', .'.join(sorted(formats))}")
        shown = _largest(peers)
        panels = figure.subplots(4, sharex=True, height_ratios=[3, 3, 3, 2])
        colours = _colours(shown)
        _draw_progress(panels[0], shown)
        _draw_window(panels[1], shown)
        _draw_rtt(panels[2], shown, colours)
        _draw_losses(panels[3], shown, colours)
        for axes in panels:
            _legend(axes)
        figure.suptitle(_title(title, peers, shown), x=0.01, ha="left", fontsize=10)
        panels[-1].set_xlabel("time since the trace began, s")
        panels[-1].set_xlim(left=0)
        try:
            figure.savefig(out, dpi=120, metadata=_undated(out))
        except OSError as error:
            raise TraceError(f"--plot {out}: cannot be written ({error.strerror}); choose another place") from error


def _undated(out: Path) -> dict[str, Any]:
    """Return metadata without dates and versions, so that the same trace gives the same file."""
    return {"Software": None} if out.suffix.lower() == ".png" else {}


def _largest(peers: Mapping[int, PeerSummary]) -> dict[int, PeerSummary]:
    """Return the peers that carried most, in their order."""
    size = {number: sum([*peer.acked_bytes[-1:], *peer.landed_bytes[-1:]]) for number, peer in peers.items()}
    largest = sorted(peers, key=lambda number: (-size[number], number))[:MAX_PEERS]
    return {number: peers[number] for number in sorted(largest)}


def _title(title: str, peers: Mapping[int, PeerSummary], shown: Mapping[int, PeerSummary]) -> str:
    """Return the title, and what is to say of each peer."""
    lines = [
        title if len(shown) == len(peers) else f"{title} (the {len(shown)} of {len(peers)} peers that carried most)"
    ]
    for number, peer in shown.items():
        said = verdict(peer)
        lines += textwrap.wrap(f"peer {number}: {said}" if len(shown) > 1 else said, _WRAP)
    return "\n".join(lines)


def _colours(peers: Mapping[int, PeerSummary]) -> dict[Key, str]:
    """Return a colour for each of the paths that lost most, of all peers."""
    lost = [
        (-peer.sent[path].lost, number, path)
        for number, peer in peers.items()
        for path in worst_paths(peer.sent, most=len(PATHS))
    ]
    return {(number, path): colour for (_, number, path), colour in zip(sorted(lost), PATHS, strict=False)}


def _of(peers: Mapping[int, PeerSummary], number: int) -> str:
    """Return what a label has of a peer: nothing if there is one."""
    return f"peer {number}: " if len(peers) > 1 else ""


def _draw_progress(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    for (number, peer), dashes in zip(peers.items(), _DASHES, strict=False):
        who = _of(peers, number)
        style: dict[str, Any] = {"where": "post", "linestyle": dashes}
        if peer.acked_at_s:
            axes.step(peer.acked_at_s, _scaled(peer.acked_bytes), color=SENT, label=f"{who}acknowledged", **style)
        if peer.landed_at_s:
            axes.step(peer.landed_at_s, _scaled(peer.landed_bytes), color=RECEIVED, label=f"{who}received", **style)
        for stalls, what in ((peer.send_stalls, "acknowledgement"), (peer.receive_stalls, "new data")):
            for began_s, length_s in stalls.ranked()[:1]:
                label = f"{who}longest without {what}:\n{1e3 * length_s:.3g} ms at {began_s:.3g} s"
                axes.axvspan(began_s, began_s + length_s, color=STALL, alpha=0.25, label=label)
    axes.set_ylabel("carried, MiB")
    axes.set_ylim(bottom=0)


def _draw_window(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    for (number, peer), dashes in zip(peers.items(), _DASHES, strict=False):
        who = _of(peers, number)
        style: dict[str, Any] = {"where": "post", "linestyle": dashes}
        if peer.inflight_at_s:
            axes.step(peer.inflight_at_s, _scaled(peer.inflight_bytes), color=OTHERS, label=f"{who}in flight", **style)
        if peer.cwnd_at_s:
            axes.step(peer.cwnd_at_s, _scaled(peer.cwnd_bytes), color=SENT, label=f"{who}congestion window", **style)
    axes.set_ylabel("at a time, MiB")
    axes.set_ylim(bottom=0)


def _draw_rtt(axes: Axes, peers: Mapping[int, PeerSummary], colours: Mapping[Key, str]) -> None:
    """Draw all samples of each path, those without a colour of their own first."""
    others, rest = 0, "all other paths" if colours else "all paths"
    for key in sorted(_paths(peers), key=lambda key: (key in colours, key)):
        number, path = key
        sampled = peers[number].sent[path]
        if sampled.rtt_us:
            others += key not in colours
            label = _path_label(peers, key) if key in colours else rest if others == 1 else None
            milliseconds = [rtt_us / 1e3 for rtt_us in sampled.rtt_us]
            colour = colours.get(key, OTHERS)
            axes.plot(sampled.rtt_at_s, milliseconds, ".", markersize=3, color=colour, label=label)
    axes.set_ylabel("round trip, ms")
    most_us = max((rtt_us for number, path in _paths(peers) for rtt_us in peers[number].sent[path].rtt_us), default=1e3)
    axes.set_ylim(0, 1.08 * most_us / 1e3)


def _draw_losses(axes: Axes, peers: Mapping[int, PeerSummary], colours: Mapping[Key, str]) -> None:
    for why, mark in _MARKS.items():
        losses = [(number, loss) for number, peer in peers.items() for loss in peer.losses if loss.trigger == why]
        if losses:
            axes.scatter(
                [loss.at_s for _, loss in losses],
                [loss.path for _, loss in losses],
                c=[colours.get((number, loss.path), OTHERS) for number, loss in losses],
                marker=mark,
                s=[12 + 6 * min(loss.packets, 64) for _, loss in losses],
            )
            label = f"lost by {why}:\n{sum(loss.packets for _, loss in losses)} packets"
            axes.scatter([], [], color=INK, marker=mark, label=label)  # in the key, of no path's colour
    axes.set_ylabel("lost on path, number")
    axes.set_ylim(-1, max((path for _, path in _paths(peers)), default=0) + 1)


def _path_label(peers: Mapping[int, PeerSummary], key: Key) -> str:
    number, path = key
    peer = peers[number]
    return f"{_of(peers, number)}{path_name(path, peer.ports)}:\n{peer.sent[path].lost} packets lost"


def _paths(peers: Mapping[int, PeerSummary]) -> list[Key]:
    return [(number, path) for number, peer in peers.items() for path in peer.sent]


def _scaled(values: list[int]) -> list[float]:
    return [value / _MIB for value in values]


def _legend(axes: Axes) -> None:
    """Put a legend, if there is anything in it, beside the panel."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.005, 1.02), fontsize=8, frameon=False)
