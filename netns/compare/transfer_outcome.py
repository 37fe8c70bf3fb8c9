"""The outcome of a file's transfer, from its record. Pure: no processes, no clock.

A transfer is `ok` if its sender says that the receiver has verified every byte, the receiver says the same, both ended
with status 0 by themselves, and the file that landed, read back, is the one that was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netns.compare.outcome import FlowOutcome, Loads, Outcome, Samples, State, together

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ending:
    """How one of the two processes ended."""

    status: int | None
    """Exit status; None if it was never started. Negative: killed by that signal."""
    last_error: str
    """Its last line on stderr."""
    events: tuple[Event, ...]
    """All its events."""

    def last(self, kind: str) -> Event | None:
        """Return the last event of this kind, or None."""
        return next((event for event in reversed(self.events) if event["event"] == kind), None)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one transfer."""

    size_bytes: int
    """Of the file."""
    landed_intact: bool
    """Whether the received file equals the one that was sent."""
    sender: Ending
    receiver: Ending
    progress: Samples
    """(seconds since the first byte, bytes)."""
    watched_s: float
    """From the first byte to the end of watching; 0 if no byte arrived."""
    timeout_s: float
    ideal_s: float
    """In an empty fabric."""
    path_shares: Mapping[str, float]
    loads: Loads
    """From the first byte on."""
    events: tuple[tuple[float, str], ...] = ()
    """What happened to the fabric: seconds since the first byte, and what."""
    untested: str | None = None
    """What of the condition came too late."""
    lacking: str | None = None
    """Which subflows MPTCP did not have."""
    backend: str = ""
    failure: str | None = None
    """Why the transfer could not be watched to its end."""


def evaluate(record: Record) -> Outcome:
    """Return the outcome."""
    sent, received = record.sender.last("sent"), record.receiver.last("received")
    state, reason = _state(record)
    progress = record.progress
    flow_s: float | None = None
    if state is State.OK and sent is not None and received is not None:
        size_bytes, flow_s = record.size_bytes, float(sent["seconds"])
        elapsed_s, stall_ms = flow_s, float(received["longest_stall_ms"])
        progress = (*progress, (float(received["seconds"]), size_bytes))
    else:
        size_bytes, elapsed_s = _arrived(record), min(record.watched_s, record.timeout_s)
        stall_ms = 1000 * longest_gap_s(progress, until_s=elapsed_s)
    account = sent or record.sender.last("stopped") or {}
    return Outcome(
        state=state,
        reason=reason,
        flows=(FlowOutcome(record.size_bytes, 0.0, flow_s, round(record.ideal_s, 6)),),
        size_bytes=size_bytes,
        elapsed_s=round(elapsed_s, 6),
        progress=together([progress]),
        longest_stall_ms=round(stall_ms, 3),
        resent_fraction=account.get("retransmitted_fraction"),
        path_shares=record.path_shares,
        events=record.events,
        note=record.untested or record.lacking,
        backend=record.backend,
        loads=record.loads,
    )


def longest_gap_s(progress: Sequence[tuple[float, int]], *, until_s: float) -> float:
    """Return the longest time without new bytes in `progress`, the time up to `until_s` included.

    For transfers that did not reach their end; the resolution is that of the samples (50 ms).
    """
    longest = last_at = 0.0
    last_bytes = 0
    for seconds, size_bytes in progress:
        if size_bytes > last_bytes:
            longest, last_at, last_bytes = max(longest, seconds - last_at), seconds, size_bytes
    return max(longest, until_s - last_at)


def _state(record: Record) -> tuple[State, str | None]:
    """Return how it ended, and the first reason why it is not ok. Errors of a process that was stopped do not count."""
    if record.failure is not None:
        return State.FAILED, record.failure
    if record.watched_s >= record.timeout_s:
        share = 100 * _arrived(record) / record.size_bytes
        return State.TIMEOUT, f"stopped after {record.timeout_s:g} s with {share:.0f} % received"
    reason = _why_failed(record)
    return (State.OK, None) if reason is None else (State.FAILED, reason)


def _why_failed(record: Record) -> str | None:
    for name, ending in (("sender", record.sender), ("receiver", record.receiver)):
        if ending.status is None:
            return f"the {name} did not start"
        if ending.status > 0 and ending.last_error:
            return ending.last_error
    sent = record.sender.last("sent")
    if sent is None or record.sender.status != 0:
        return f"the sender ended with status {record.sender.status} and reported no success"
    if sent.get("verified") is not True:
        return "the receiver did not confirm to the sender that every byte is verified"
    if record.receiver.last("received") is None or record.receiver.status != 0:
        return f"the receiver ended with status {record.receiver.status} and reported no file"
    return None if record.landed_intact else "the received file differs from the one that was sent"


def _arrived(record: Record) -> int:
    return record.progress[-1][1] if record.progress else 0
