"""A report in the schema of iperf3 -J (3.12), so that what reads iperf3's reads ours.

Streams have their number for `socket`. Beyond iperf3's keys: `paths`, the paths that were used in an interval or at all
(SRD: source ports; MPTCP: subflows), and `bidir` and `verify` of a test. `protocol` is SRD, TCP or MPTCP; SRD has no
window of the receiver, no variance of round trips and no MTU of the path in here: those are 0, as iperf3 writes what it
does not know. Times of `rtt` are microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from srd.perf.control import Fields
from srd.perf.meter import Interval, StreamInterval, Total
from srd.perf.parameters import Direction, Parameters, Protocol
from srd.perf.results import PerfReport, Start
from srd.perf.stream import Address

SERVER_OUTPUT_TEXT, SERVER_OUTPUT_JSON = "server_output_text", "server_output_json"


def program() -> str:
    """Return this program and its version, as iperf3 names itself."""
    try:
        return f"open-srd {version('open-srd')}"
    except PackageNotFoundError:  # a checkout
        return "open-srd"


def error_document(reason: str) -> Fields:
    """Return what is printed for a test that failed."""
    return {"start": {"connected": [], **_system()}, "intervals": [], "end": {}, "error": reason}


def document(report: PerfReport) -> Fields:
    """Return the report of a test."""
    made: Fields = {
        "start": _start(report.start),
        "intervals": [_interval(interval, report.start) for interval in report.intervals],
        "end": _end(report),
    }
    output = report.other.output if report.other else None
    if output is not None:
        made[SERVER_OUTPUT_TEXT if isinstance(output, str) else SERVER_OUTPUT_JSON] = output
    return made


def _system() -> Fields:
    return {"version": program(), "system_info": " ".join(os.uname())}


def opening(other: Address, *, cookie: str, at: float, is_client: bool = True) -> Fields:
    """Return what every report says of its test: which program, when, and with whom."""
    when = datetime.fromtimestamp(at, UTC)
    return {
        **_system(),
        "timestamp": {"time": f"{when:%a, %d %b %Y %H:%M:%S} GMT", "timesecs": int(at)},
        ("connecting_to" if is_client else "accepted_connection"): {"host": other[0], "port": other[1]},
        "cookie": cookie,
    }


def _start(start: Start) -> Fields:
    parameters = start.parameters
    connected = [
        {
            "socket": number + 1,
            "local_host": own[0],
            "local_port": own[1],
            "remote_host": other[0],
            "remote_port": other[1],
        }
        for number, (own, other) in enumerate(start.ends)
    ]
    return {
        "connected": connected,
        **opening(start.other, cookie=start.cookie, at=start.at, is_client=start.is_client),
        "tcp_mss_default": start.mss_bytes,
        "target_bitrate": parameters.rate_bps,
        "sock_bufsize": 0,  # left to the kernel
        "sndbuf_actual": start.sndbuf_bytes,
        "rcvbuf_actual": start.rcvbuf_bytes,
        "test_start": _test_start(parameters),
    }


def _test_start(parameters: Parameters) -> Fields:
    return {
        "protocol": parameters.protocol.value,
        "num_streams": parameters.streams,
        "blksize": parameters.block_bytes,
        "omit": _whole(parameters.omit_s),
        "duration": _whole(parameters.seconds),
        "bytes": parameters.size_bytes,
        "blocks": 0,
        "reverse": int(parameters.direction is Direction.REVERSE),
        "bidir": int(parameters.direction is Direction.BOTH),
        "tos": 0,
        "target_bitrate": parameters.rate_bps,
        "verify": int(parameters.verify),
    }


def _whole(seconds: float) -> int | float:
    return int(seconds) if seconds.is_integer() else seconds


def _moved(size_bytes: int, *, start_s: float, end_s: float) -> Fields:
    seconds = end_s - start_s
    return {
        "start": start_s,
        "end": end_s,
        "seconds": seconds,
        "bytes": size_bytes,
        "bits_per_second": 8 * size_bytes / seconds if seconds > 0 else 0.0,
    }


def _interval(interval: Interval, start: Start) -> Fields:
    by_direction = _by_direction(interval.streams, start)
    made: Fields = {"streams": [_stream(stream, interval) for stream in interval.streams]}
    for suffix, streams in zip(("", "_bidir_reverse"), by_direction, strict=False):
        total = _moved(sum(stream.size_bytes for stream in streams), start_s=interval.start_s, end_s=interval.end_s)
        if streams[0].sends:
            total["retransmits"] = sum(stream.retransmits for stream in streams)
        made[f"sum{suffix}"] = {**total, "omitted": interval.omitted, "sender": streams[0].sends}
    return made


def _by_direction(streams: Sequence[StreamInterval], start: Start) -> list[list[StreamInterval]]:
    """Split into those that the client sends and the others, without what is empty."""
    halves: tuple[list[StreamInterval], list[StreamInterval]] = [], []
    for stream in streams:
        halves[not start.parameters.client_sends(stream.number)].append(stream)
    return [half for half in halves if half]


def _stream(stream: StreamInterval, interval: Interval) -> Fields:
    made = {"socket": stream.number + 1, **_moved(stream.size_bytes, start_s=interval.start_s, end_s=interval.end_s)}
    if stream.sends:
        made |= {
            "retransmits": stream.retransmits,
            "snd_cwnd": stream.now.cwnd_bytes,
            "snd_wnd": stream.now.snd_wnd_bytes,
            "rtt": stream.now.rtt_us,
            "rttvar": stream.now.rttvar_us,
            "pmtu": stream.now.pmtu_bytes,
            "paths": stream.paths,
        }
    return {**made, "omitted": interval.omitted, "sender": stream.sends}


def _end(report: PerfReport) -> Fields:
    start, numbers = report.start, range(report.start.parameters.count)
    made: Fields = {"streams": [_stream_end(report, number) for number in numbers]}
    forward = [number for number in numbers if start.parameters.client_sends(number)]
    backward = [number for number in numbers if number not in forward]
    halves = [half for half in (forward, backward) if half]
    for suffix, half in zip(("", "_bidir_reverse"), halves, strict=False):
        ends = [report.totals(number) for number in half]
        sends = start.sends(half[0])
        made[f"sum_sent{suffix}"] = _sum([sent for sent, _ in ends], sends=sends, is_sender=True)
        made[f"sum_received{suffix}"] = _sum([received for _, received in ends], sends=sends, is_sender=False)
    made["cpu_utilization_percent"] = _load(report)
    if start.parameters.protocol is not Protocol.SRD:
        own, other = report.own.congestion, report.other.congestion if report.other else report.own.congestion
        first_sends = start.sends(0)
        made["sender_tcp_congestion"] = own if first_sends else other
        made["receiver_tcp_congestion"] = other if first_sends else own
    return made


def _load(report: PerfReport) -> Fields:
    made: Fields = {}
    for name, results in (("host", report.own), ("remote", report.other)):
        load = results.load if results else None
        for part in ("total", "user", "system"):
            made[f"{name}_{part}"] = getattr(load, part) if load else 0.0
    return made


def _sum(totals: Iterable[Total | None], *, sends: bool, is_sender: bool) -> Fields:
    known = [total for total in totals if total is not None]
    seconds = max((total.seconds for total in known), default=0.0)
    made = _moved(sum(total.size_bytes for total in known), start_s=0, end_s=seconds)
    if is_sender:
        made["retransmits"] = sum(total.retransmits for total in known)
    return {**made, "sender": sends}


def _stream_end(report: PerfReport, number: int) -> dict[str, Any]:
    sent, received = report.totals(number)
    sends = report.start.sends(number)
    sender: Fields = {"socket": number + 1, **_moved(sent.size_bytes if sent else 0, start_s=0, end_s=_seconds(sent))}
    sender |= {
        "retransmits": sent.retransmits if sent else 0,
        "max_snd_cwnd": sent.max_cwnd_bytes if sent else 0,
        "max_snd_wnd": sent.max_snd_wnd_bytes if sent else 0,
        "max_rtt": sent.max_rtt_us if sent else 0,
        "min_rtt": sent.min_rtt_us if sent else 0,
        "mean_rtt": sent.mean_rtt_us if sent else 0,
        "paths": sent.paths if sent else 0,
        "sender": sends,
    }
    receiver: Fields = {
        "socket": number + 1,
        **_moved(received.size_bytes if received else 0, start_s=0, end_s=_seconds(received)),
        "sender": sends,
    }
    return {"sender": sender, "receiver": receiver}


def _seconds(total: Total | None) -> float:
    return total.seconds if total else 0.0
