"""Plots a trace: progress, window and bytes in flight, RTT of each path, and losses, over one time axis.

Only this module needs Matplotlib, which the extra `report` installs; the text summary does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srd.qlog.errors import TraceError
from srd.qlog.summary import PeerSummary

_MIB: Final = 2**20
_COLOURS: Final = mpl.colormaps["turbo"]
_MARKS: Final = {"reordering": "|", "timeout": "x"}


def plot(peers: Mapping[int, PeerSummary], *, title: str, out: Path) -> None:
    """Plot all peers to `out`; its suffix selects the format. Raises TraceError if it cannot be written."""
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        figure = Figure(figsize=(10, 11), layout="constrained", facecolor="white")
        formats = figure.canvas.get_supported_filetypes()
        if out.suffix[1:].lower() not in formats:
            raise TraceError(f"--plot {out}: the name ends in none of .{', .'.join(sorted(formats))}")
        panels = figure.subplots(4, sharex=True, height_ratios=[3, 3, 3, 2])
        _draw_progress(panels[0], peers)
        _draw_window(panels[1], peers)
        _draw_rtt(panels[2], peers)
        _draw_losses(panels[3], peers)
        panels[0].set_title(title, parse_math=False)
        panels[-1].set_xlabel("seconds since the trace began")
        panels[-1].set_xlim(left=0)
        try:
            figure.savefig(out, dpi=120, metadata=_undated(out))
        except OSError as error:
            raise TraceError(f"--plot {out}: cannot be written ({error.strerror}); choose another place") from error


def _undated(out: Path) -> dict[str, Any]:
    """Return metadata without dates and versions, so that the same trace gives the same file."""
    return {"Software": None} if out.suffix.lower() == ".png" else {}


def _draw_progress(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    for number, peer in peers.items():
        if peer.acked_at_s:
            label = f"peer {number}: acknowledged"
            axes.step(peer.acked_at_s, _scaled(peer.acked_bytes), where="post", label=label)
        if peer.landed_at_s:
            label = f"peer {number}: landed"
            axes.step(peer.landed_at_s, _scaled(peer.landed_bytes), where="post", label=label, linestyle="--")
        for stalls, side in ((peer.send_stalls, "send"), (peer.receive_stalls, "receive")):
            for began, length in stalls.ranked()[:1]:
                axes.axvspan(began, began + length, color="tab:red", alpha=0.12)
                axes.annotate(f"{side} {1e3 * length:.3g} ms", (began, 0), fontsize=7, color="tab:red", rotation=90)
    axes.set_ylabel("MiB")
    _legend(axes)


def _draw_window(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    for number, peer in peers.items():
        if peer.cwnd_at_s:
            axes.step(peer.cwnd_at_s, _scaled(peer.cwnd_bytes), where="post", label=f"peer {number}: window")
        if peer.inflight_at_s:
            inflight = _scaled(peer.inflight_bytes)
            axes.step(peer.inflight_at_s, inflight, where="post", label=f"peer {number}: in flight", alpha=0.6)
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    _legend(axes)


def _draw_rtt(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    count = _paths(peers)
    for peer in peers.values():
        for number, path in peer.sent.items():
            if path.rtt_us:
                milliseconds = [rtt / 1e3 for rtt in path.rtt_us]
                axes.plot(path.rtt_at_s, milliseconds, ".", markersize=3, color=_COLOURS(number / count))
    axes.set_ylabel("round trip, ms (colour: path)")
    axes.set_ylim(bottom=0)


def _draw_losses(axes: Axes, peers: Mapping[int, PeerSummary]) -> None:
    count = _paths(peers)
    for why, mark in _MARKS.items():
        losses = [loss for peer in peers.values() for loss in peer.losses if loss.trigger == why]
        if losses:
            axes.scatter(
                [loss.at_s for loss in losses],
                [loss.path for loss in losses],
                c=[_COLOURS(loss.path / count) for loss in losses],
                marker=mark,
                s=[12 + 6 * min(loss.packets, 64) for loss in losses],
                label=f"{why}: {sum(loss.packets for loss in losses)} packets",
            )
    axes.set_ylabel("lost on path")
    axes.set_ylim(-1, count)
    _legend(axes)


def _paths(peers: Mapping[int, PeerSummary]) -> int:
    return max((number for peer in peers.values() for number in peer.sent), default=0) + 1


def _scaled(values: list[int]) -> list[float]:
    return [value / _MIB for value in values]


def _legend(axes: Axes) -> None:
    """Add a legend, unless there are no lines or so many that the legend would hide the plot."""
    handles, _ = axes.get_legend_handles_labels()
    if 0 < len(handles) <= 12:
        axes.legend(loc="best", fontsize=7)
