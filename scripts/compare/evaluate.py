"""Computes the outcome of a transfer from its record. Pure: no processes, no clock.

A transfer has completed if the sender reports that the receiver verified every byte, the receiver reports the same,
both ended with status 0, and neither had to be stopped. Everything else is a failure, with the reason in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.compare.errors import TransferError
from scripts.compare.outcome import Outcome, Samples, longest_gap_s

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

    byte_count: int
    """Size of the file."""

    landed_intact: bool
    """Whether the received file equals the one that was sent."""

    sender: Ending
    """The sending process."""

    receiver: Ending
    """The receiving process."""

    progress: Samples
    """(seconds since the first byte, bytes)."""

    watched_s: float
    """Time from the first byte to the end of the observation; 0 if no byte arrived."""

    bound_s: float
    """Timeout of the transfer."""

    path_shares: tuple[float, ...]
    """Each spine's share of the bytes."""

    relay_cpu_fraction: float | None
    """Share of one core that the relay used."""

    machine_busy_fraction: float | None = None
    """Share of all cores that was in use."""

    stolen_fraction: float | None = None
    """Share of all cores that a hypervisor gave to others."""

    wanted_subflows: int = 0
    """Subflows that an MPTCP connection should have; 0 for other protocols."""

    fails_spine: bool = False
    """Whether the condition includes a spine failure."""

    blackholed: str | None = None
    """The spine that failed."""

    blackhole_at_s: float | None = None
    """Time of the failure, on the clock of `progress`."""

    failure: str | None = None
    """Why the transfer could not be observed to its end."""


def evaluate(record: Record) -> Outcome:
    """Return the outcome."""
    sent, received = record.sender.last("sent"), record.receiver.last("received")
    failure = record.failure or _why_incomplete(record)
    progress = record.progress
    if failure is None and sent is not None and received is not None:
        byte_count, elapsed_s = record.byte_count, number(sent, "seconds")
        stall_ms = number(received, "longest_stall_ms")
        progress = (*progress, (number(received, "seconds"), byte_count))
    else:
        byte_count, elapsed_s = progress[-1][1], record.watched_s
        stall_ms = 1000 * longest_gap_s(progress, until_s=elapsed_s)
    account = sent or record.sender.last("stopped") or {}
    return Outcome(
        completed=failure is None,
        sha256_ok=failure is None and record.landed_intact,
        byte_count=byte_count,
        elapsed_s=elapsed_s,
        longest_stall_ms=stall_ms,
        path_shares=record.path_shares,
        retransmitted_fraction=account.get("retransmitted_fraction"),
        progress=progress,
        blackhole_at_s=record.blackhole_at_s,
        blackholed=record.blackholed,
        relay_cpu_fraction=record.relay_cpu_fraction,
        machine_busy_fraction=record.machine_busy_fraction,
        stolen_fraction=record.stolen_fraction,
        failure=failure if failure or record.landed_intact else "the received file differs from the sent file",
        note=_remark(record, account),
    )


def number(event: Event, key: str) -> float:
    """Return the number under `key`. Raises TransferError if there is none."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TransferError(f"event {event.get('event')!r}: {key} is {value!r}, not a number")
    return value


def _why_incomplete(record: Record) -> str | None:
    """Return the first reason why it is not complete, or None. Errors of a stopped process are ignored."""
    if record.watched_s >= record.bound_s:
        return f"stopped after {record.bound_s:g} s with {_percent(record)} received"
    for name, ending in (("sender", record.sender), ("receiver", record.receiver)):
        if ending.status is not None and ending.status > 0 and ending.last_error:
            return ending.last_error
        if ending.status is None:
            return f"the {name} did not start"
    sent = record.sender.last("sent")
    if sent is None or record.sender.status != 0:
        return f"the sender ended with status {record.sender.status} and reported no success"
    if sent.get("verified") is not True:
        return "the receiver did not confirm to the sender that every byte is verified"
    if record.receiver.last("received") is None or record.receiver.status != 0:
        return f"the receiver ended with status {record.receiver.status} and reported no file"
    return None


def _percent(record: Record) -> str:
    return f"{100 * record.progress[-1][1] / max(1, record.byte_count):.0f} %"


def _remark(record: Record, account: Event) -> str | None:
    if record.fails_spine and record.blackholed is None:
        return "the transfer ended before the spine failed"
    subflows = account.get("subflows")
    if record.wanted_subflows and isinstance(subflows, list) and len(subflows) != record.wanted_subflows:
        return f"{len(subflows)} of {record.wanted_subflows} subflows existed at the end"
    return None
