"""Measure one cell on its lab: start the workers, let all flows begin at once, do to the fabric what is planned.

A transport that fails or hangs makes an outcome, never an exception: only what the lab cannot do is one (LabError).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.programs import output_of, tool
from srd.compare.counters import Reading
from srd.compare.errors import CellError
from srd.compare.fabric import Ideal
from srd.compare.faults import Faults
from srd.compare.grid import Condition
from srd.compare.outcome import CellOutcome, CellProgress, CellState, FlowOutcome, OnProgress, accounts, together
from srd.compare.payload import Payload
from srd.compare.traffic import TrafficFlow
from srd.compare.worker.plan import FIRST_FLOW
from srd.compare.workers import WORKER, Workers

LISTEN_WITHIN_S: Final = 60.0
READY_WITHIN_S: Final = 60.0
START_AFTER_S: Final = 0.1
"""From the last `ready` to the start: every worker has read the line by then."""


class Measurement:
    """One cell's. Make it, `run` it once."""

    def __init__(
        self,
        lab: Lab,
        *,
        transport: str,
        flows: Sequence[TrafficFlow],
        payload: Payload | None = None,
        condition: Condition,
        timeout_s: float,
        on_progress: OnProgress,
    ) -> None:
        """`payload`: the file that the only flow is."""
        self._lab = lab
        self._payload = payload
        self._transport = transport
        self._flows = dict(enumerate(flows, FIRST_FLOW))
        self._total_bytes = sum(flow.size_bytes for flow in flows)
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._faults = Faults(lab, condition)
        self._arrived: dict[str, int] = {}
        """By host: bytes so far."""
        self._seconds: dict[int, float] = {}
        """By flow: its completion time."""
        self._start_at = 0.0
        self._before = Reading.take(lab)

    def run(self) -> CellOutcome:
        """Measure."""
        state, reason = CellState.OK, None
        if self._payload is not None:
            self._payload.clear()
        with Workers() as workers:
            try:
                self._prepare(workers)
                if not self._watch(workers):
                    share = f"{100 * self._arrived_bytes() / self._total_bytes:.0f} %"
                    state, reason = CellState.TIMEOUT, f"stopped after {self._timeout_s:g} s with {share} received"
            except CellError as error:
                workers.require_not_killed()
                state, reason = CellState.FAILED, str(error)
            after = Reading.take(self._lab)
            workers.finish()
            if state is CellState.OK and self._payload is not None and not self._payload.landed_intact():
                state, reason = CellState.FAILED, "the received file differs from the one that was sent"
            return self._outcome(workers, state=state, reason=reason, after=after)

    # -- the start ----------------------------------------------------------------------------------------------------

    def _prepare(self, workers: Workers) -> None:
        """Start a worker on each host, tell each its part, and set the time of the start."""
        senders = {flow.source for flow in self._flows.values()}
        taking_part = [
            host
            for host in self._lab.topology.hosts
            if host in senders or any(flow.destination == host for flow in self._flows.values())
        ]
        if self._transport == MPTCP:
            for host in taking_part:
                allow_subflows(self._lab, host, sends=host in senders)
        for host in taking_part:
            workers.start(self._lab, host=host, command=self._command(host))
        ports = {
            host: event["port"] for host, event in workers.until_all("listening", within_s=LISTEN_WITHIN_S).items()
        }
        for host in taking_part:
            workers.by_host[host].say(**self._plan(host, ports))
        workers.until_all("ready", within_s=READY_WITHIN_S)
        self._before = Reading.take(self._lab)
        self._start_at = time.monotonic() + START_AFTER_S
        for host in taking_part:
            workers.by_host[host].say(start_at=self._start_at)

    def _command(self, host: str) -> list[str]:
        command = [*WORKER, "--transport", self._transport, "--listen", self._lab.address(host)]
        bind = first_address(self._lab, host) if self._transport == MPTCP else None
        command += [] if bind is None else ["--bind", bind]
        if (payload := self._payload) is not None:
            command += ["--file", str(payload.source), "--into", str(payload.output), "--sha256", payload.sha256]
        return command

    def _plan(self, host: str, ports: Mapping[str, int]) -> dict[str, Any]:
        own = [
            [number, self._lab.address(flow.destination), ports[flow.destination], flow.size_bytes, flow.at_s]
            for number, flow in self._flows.items()
            if flow.source == host
        ]
        arriving = {number: flow.size_bytes for number, flow in self._flows.items() if flow.destination == host}
        return {"flows": own, "arriving": arriving}

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _watch(self, workers: Workers) -> bool:
        """Wait until all flows are complete; return False if they are not in time. Raises CellError."""
        self._faults.begin(at=self._start_at, since=self._before)
        give_up_at = self._start_at + self._timeout_s
        while len(self._seconds) < len(self._flows):
            if time.monotonic() >= give_up_at:
                return False
            if self._faults.step():
                continue
            workers.check()
            for worker, event in workers.wait(until=min(give_up_at, self._faults.next_at or give_up_at)):
                self._note(worker.host, event)
        return True

    def _note(self, host: str, event: Mapping[str, Any]) -> None:
        if event["event"] == "flow":
            self._seconds[event["number"]] = event["seconds"]
        elif event["event"] == "progress":
            self._arrived[host] = event["bytes"]
            self._faults.arrived(self._arrived_bytes() / self._total_bytes)
            what = self._faults.events[-1][1] if self._faults.events else ""
            self._on_progress(CellProgress(event["seconds"], self._arrived_bytes(), self._total_bytes, what))

    def _arrived_bytes(self) -> int:
        return sum(self._arrived.values())

    # -- its figures --------------------------------------------------------------------------------------------------

    def _outcome(
        self,
        workers: Workers,
        *,
        state: CellState,
        reason: str | None,
        after: Reading,
    ) -> CellOutcome:
        ideal = Ideal(self._lab.topology)
        flows = tuple(
            FlowOutcome(
                flow.size_bytes,
                flow.at_s,
                self._seconds.get(number),
                round(ideal.seconds(flow.source, flow.destination, size_bytes=flow.size_bytes), 6),
            )
            for number, flow in self._flows.items()
        )
        elapsed_s = watched_s = max(0.0, after.at - self._start_at) if self._start_at else 0.0
        size_bytes = self._arrived_bytes()
        progress = together(
            [(event["seconds"], event["bytes"]) for event in worker.events if event["event"] == "progress"]
            for worker in workers.by_host.values()
        )
        if state is CellState.OK:
            elapsed_s = max(flow.at_s + (flow.seconds or 0.0) for flow in flows)
            size_bytes = self._total_bytes
            progress = (*(sample for sample in progress if sample[0] < elapsed_s), (elapsed_s, size_bytes))
        stall_ms, resent_fraction, cpu_s = accounts(worker.last("account") for worker in workers.by_host.values())
        return CellOutcome(
            state=state,
            reason=reason,
            flows=flows,
            size_bytes=size_bytes,
            elapsed_s=round(elapsed_s, 6),
            progress=progress,
            longest_stall_ms=stall_ms,
            resent_fraction=resent_fraction,
            path_shares=after.path_shares(
                self._lab, since=self._before, senders={flow.source for flow in self._flows.values()}
            ),
            events=tuple(self._faults.events),
            note=(self._faults.untested(elapsed_s) if state is CellState.OK else None)
            or self._lacking_subflows(workers),
            backend=self._lab.backend,
            loads=after.loads(since=self._before, workers_cpu_s=cpu_s, seconds=watched_s),
        )

    def _lacking_subflows(self, workers: Workers) -> str | None:
        known = [worker.last("account") for worker in workers.by_host.values()]
        subflows = [event["subflows"] for event in known if event is not None and event["subflows"] is not None]
        return lacking(self._lab, subflows)


MPTCP: Final = "mptcp"
_MAX_SUBFLOWS: Final = 8  # of the kernel's path manager (MPTCP_PM_ADDR_MAX)


def allow_subflows(lab: Lab, host: str, *, sends: bool) -> None:
    """Let MPTCP open one subflow over each spine, from the sender's pinned addresses. Raises CellError.

    The sender opens them by itself (endpoint type `subflow`), so no announcement can be lost.
    """
    spines = lab.topology.spines[:_MAX_SUBFLOWS]
    _ip(lab, host, "mptcp", "limits", "set", "subflows", str(max(1, len(spines))))
    for spine in spines[1:] if sends else ():  # the first subflow is bound to the first spine's address
        _ip(lab, host, "mptcp", "endpoint", "add", lab.pinned_addresses(host)[spine], "subflow")


def first_address(lab: Lab, host: str) -> str | None:
    """Return the address that the first subflow is bound to; None in a fabric without spines."""
    spines = lab.topology.spines
    return lab.pinned_addresses(host)[spines[0]] if spines else None


def lacking(lab: Lab, counts: Sequence[int]) -> str | None:
    """Return that connections with so many subflows at the end had too few, or None."""
    wanted = max(1, len(lab.topology.spines[:_MAX_SUBFLOWS]))
    if counts and min(counts) < wanted:
        return f"{min(counts)} of {wanted} subflows of a connection existed at the end"
    return None


def _ip(lab: Lab, host: str, *arguments: str) -> None:
    """Run ip(8) on `host`, as pyroute2 lacks support for the path manager of MPTCP."""
    try:
        output_of(lab.command(host, [tool("ip"), *arguments]), called=f"ip {' '.join(arguments)}")
    except BackendError as error:
        raise CellError(str(error)) from None
