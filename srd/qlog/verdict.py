"""One sentence about a peer of a trace: how fast it was, what was lost most, and what held it back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from srd.qlog.summary import PeerSummary, SentPath

WINDOW_FULL: Final = 0.9
"""Share of the congestion window in flight from which on it is full: what is left may be less than a burst."""
OFTEN: Final = 0.5
"""Share of the time."""
LITTLE: Final = 0.01
"""Share of what the other direction carried: below it, it is only what belongs to that, such as a confirmation."""


def verdict(peer: PeerSummary) -> str:
    """Return the sentences; empty if nothing was sent or received."""
    acked_bytes, landed_bytes = (sizes[-1] if sizes else 0 for sizes in (peer.acked_bytes, peer.landed_bytes))
    parts = []
    if acked_bytes and acked_bytes >= LITTLE * landed_bytes:
        parts += [_rate("acknowledged", acked_bytes, peer), _losses(peer)]
    if landed_bytes and landed_bytes >= LITTLE * acked_bytes:
        parts.append(_rate("received", landed_bytes, peer))
    for stalls, what in ((peer.send_stalls, "an acknowledgement"), (peer.receive_stalls, "new data")):
        for began_s, length_s in stalls.ranked()[:1]:
            parts.append(f"the longest time without {what} was {1e3 * length_s:.4g} ms, at {began_s:.3g} s")
    text = "; ".join(parts)
    limit = _limit(peer)
    return ". ".join(each for each in (text, limit) if each) + ("." if text or limit else "")


def path_name(number: int, ports: Mapping[int, int]) -> str:
    """Return a path's number, with its source port if the trace has it."""
    return f"path {number} (port {ports[number]})" if number in ports else f"path {number}"


def worst_paths(paths: Mapping[int, SentPath], *, most: int) -> list[int]:
    """Return the paths with most packets lost, the worst first; none without a loss."""
    ranked = sorted(((path.lost, -number) for number, path in paths.items() if path.lost), reverse=True)
    return [-negative for _, negative in ranked[:most]]


def _rate(what: str, size_bytes: int, peer: PeerSummary) -> str:
    seconds = peer.ended_s - peer.began_s
    rate = f", {_short(8e-6 * size_bytes / seconds)} Mbit/s" if seconds > 0 else ""
    return f"{_short(size_bytes / 2**20)} MiB {what} in {seconds:.3g} s{rate}"


def _short(value: float) -> str:
    """Return three digits or more, never an exponent of a large number."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _losses(peer: PeerSummary) -> str:
    sent = sum(path.packets for path in peer.sent.values())
    lost = sum(path.lost for path in peer.sent.values())
    if not lost:
        return "nothing was lost"
    text = f"{lost} of {sent} packets ({100 * lost / sent:.2g} %) taken for lost" if sent else f"{lost} packets lost"
    (worst,) = worst_paths(peer.sent, most=1)
    return f"{text}, most on {path_name(worst, peer.ports)}: {peer.sent[worst].lost}"


def _limit(peer: PeerSummary) -> str:
    """Return whether the congestion window was the limit; empty without both."""
    share = window_full(peer)
    if share is None:
        return ""
    percent = f"the window was full for {100 * share:.0f} % of the time"
    if share >= OFTEN:
        return f"The congestion window was the limit: {percent}"
    return (
        f"The congestion window was not the limit ({percent}), but what this end or the other could do, or had to send"
    )


def window_full(peer: PeerSummary) -> float | None:
    """Return for which share of the time the window was full, from the first that is known on; None without one."""
    full_s, known_s, index = 0.0, 0.0, -1
    ends_s = [*peer.inflight_at_s[1:], peer.ended_s]
    for at_s, inflight_bytes, end_s in zip(peer.inflight_at_s, peer.inflight_bytes, ends_s, strict=False):
        while index + 1 < len(peer.cwnd_at_s) and peer.cwnd_at_s[index + 1] <= at_s:
            index += 1
        if index >= 0:
            known_s += end_s - at_s
            full_s += (end_s - at_s) * (inflight_bytes >= WINDOW_FULL * peer.cwnd_bytes[index])
    return full_s / known_s if known_s > 0 else None
