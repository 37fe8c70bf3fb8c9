"""Measure one cell of a workload of a file: a receiver and a sender, as a user runs them, and a loop that watches both.

The receiver starts first and says its port; then the sender starts. SRD's are `srd recv` and `srd send`, TCP's are
those of srd.workload.tcp_file, which print the same events. The time limit starts at the first byte: what hangs is
stopped, and its progress until then is its result. Times of events are from the first byte on, too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from netns.compare.counters import Reading
from netns.compare.errors import CellError
from netns.compare.fabric import Ideal
from netns.compare.faults import Faults
from netns.compare.grid import Condition
from netns.compare.hosts import PYTHON, Event, Hosts
from netns.compare.outcome import Outcome
from netns.compare.payload import Payload
from netns.compare.progress import OnProgress, Progress
from netns.compare.subflows import MPTCP, allow_subflows, first_address, lacking
from netns.compare.traffic import Flow
from netns.compare.transfer_outcome import Ending, Record, evaluate
from netns.lab.lab import Lab

LISTEN_WITHIN_S: Final = 20.0
FIRST_BYTE_WITHIN_S: Final = 20.0
_EXIT_WITHIN_S: Final = 10.0
"""From the end of one to the end of the other."""
_TICK_S: Final = 0.05
_SRD: Final = (*PYTHON, "srd")
_TCP: Final = (*PYTHON, "srd.workload.tcp_file")
_CUBIC: Final = "cubic"


def receive_command(transport: str, *, address: str, output: Path) -> list[str]:
    """Return the receiver's command line."""
    where = ["--listen", f"{address}:0", "--output", str(output)]
    if transport == "srd":
        return [*_SRD, "recv", *where, "--once", "--json", "--overwrite"]
    return [*_TCP, "receive", *where, *_congestion_control(transport)]


def send_command(transport: str, *, source: Path, to: str, bind: str | None) -> list[str]:
    """Return the sender's command line; `bind`: the local address of MPTCP's first subflow."""
    if transport == "srd":
        return [
            *_SRD,
            "send",
            str(source),
            to,
            "--hash",
            "sha256",
            "--json",
            "--retry-for",
            "0",
        ]  # TCP's tool has SHA-256
    own = ["--bind", bind] if transport == MPTCP and bind is not None else []
    return [*_TCP, "send", str(source), to, *_congestion_control(transport), *own]


def _congestion_control(transport: str) -> list[str]:
    return ["--algorithm", _CUBIC, "--mptcp"] if transport == MPTCP else ["--algorithm", transport]


class Transfer:
    """One cell's. Make it, `run` it once."""

    def __init__(
        self,
        lab: Lab,
        *,
        transport: str,
        flow: Flow,
        payload: Payload,
        condition: Condition,
        timeout_s: float,
        on_progress: OnProgress,
    ) -> None:
        self._lab, self._transport = lab, transport
        self._flow, self._payload = flow, payload
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._faults = Faults(lab, condition)
        self._samples: list[tuple[float, int]] = []
        self._first_at: float | None = None
        self._before = self._from_first_byte = Reading.take(lab)

    def run(self) -> Outcome:
        """Measure; a transfer that fails has an outcome, too. Raises only what the transport did not cause."""
        self._payload.clear()
        failure = None
        with Hosts() as hosts:
            try:
                self._start(hosts)
                self._watch(hosts)
            except CellError as error:
                failure = str(error)
            hosts.require_not_killed()
            after = Reading.take(self._lab)
            hosts.stop()
            return evaluate(self._record(hosts, after, failure=failure))

    # -- the two processes --------------------------------------------------------------------------------------------

    def _start(self, hosts: Hosts) -> None:
        lab, source, destination = self._lab, self._flow.source, self._flow.destination
        if self._transport == MPTCP:
            allow_subflows(lab, source, sends=True)
            allow_subflows(lab, destination, sends=False)
        address = lab.address(destination)
        receive = receive_command(self._transport, address=address, output=self._payload.output)
        hosts.start(lab, host=destination, command=receive)
        port = hosts.until_all("listening", within_s=LISTEN_WITHIN_S)[destination]["port"]
        send = send_command(
            self._transport, source=self._payload.source, to=f"{address}:{port}", bind=first_address(lab, source)
        )
        hosts.start(lab, host=source, command=send)

    def _watch(self, hosts: Hosts) -> None:
        """Read events until both have ended, or a timeout: of the start, of the transfer, or after the other's end."""
        started_at, exit_at = time.monotonic(), None
        while not all(ended := [worker.ended for worker in hosts.workers.values()]):
            now = time.monotonic()
            if exit_at is None and any(ended):
                exit_at = now + _EXIT_WITHIN_S
            until = started_at + FIRST_BYTE_WITHIN_S if self._first_at is None else self._first_at + self._timeout_s
            if now >= min(until, exit_at or until):
                if self._first_at is None and exit_at is None:
                    raise CellError(f"nothing arrived within {FIRST_BYTE_WITHIN_S:g} s")
                return
            if not self._faults.step():
                hosts.wait(until=min(until, now + _TICK_S, self._faults.next_at or until))
            for event in hosts.workers[self._flow.destination].fresh():
                if event["event"] == "progress":
                    self._note_progress(event)

    def _note_progress(self, event: Event) -> None:
        seconds = float(event["seconds"])
        size_bytes = min(int(event["bytes"]), self._payload.size_bytes)  # srd recv counts the file's name, too
        if self._first_at is None:
            self._first_at = time.monotonic() - seconds
            self._faults.begin(at=self._first_at, since=self._before)
            self._from_first_byte = Reading.take(self._lab)
        self._samples.append((seconds, size_bytes))
        self._faults.arrived(size_bytes / self._payload.size_bytes)
        what = self._faults.events[-1][1] if self._faults.events else ""
        self._on_progress(Progress(seconds, size_bytes, self._payload.size_bytes, what))

    # -- its record ---------------------------------------------------------------------------------------------------

    def _record(self, hosts: Hosts, after: Reading, *, failure: str | None) -> Record:
        flow = self._flow
        sender, receiver = _ending(hosts, flow.source), _ending(hosts, flow.destination)
        sent = sender.last("sent")
        subflows = (sent or {}).get("subflows") if self._transport == MPTCP else None
        return Record(
            size_bytes=self._payload.size_bytes,
            landed_intact=self._payload.landed_intact(),
            sender=sender,
            receiver=receiver,
            progress=tuple(self._samples),
            watched_s=0.0 if self._first_at is None else after.at - self._first_at,
            timeout_s=self._timeout_s,
            ideal_s=Ideal(self._lab.topology).seconds(flow.source, flow.destination, size_bytes=flow.size_bytes),
            path_shares=after.path_shares(self._lab, since=self._before, senders=[flow.source]),
            loads=after.loads(since=self._from_first_byte),
            events=tuple(self._faults.events),
            untested=None if sent is None else self._faults.untested(float(sent["seconds"])),
            lacking=None if subflows is None else lacking(self._lab, [len(subflows)]),
            backend=self._lab.backend,
            failure=failure,
        )


def _ending(hosts: Hosts, host: str) -> Ending:
    worker = hosts.workers.get(host)
    if worker is None:
        return Ending(None, "", ())
    return Ending(worker.status, worker.last_error, tuple(worker.events))
