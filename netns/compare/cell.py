"""Measure one cell on its lab: start the workers, let all flows begin at once, do to the fabric what is planned.

A transport that fails or hangs makes an outcome, never an exception: only what the lab cannot do is one (LabError).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from netns.compare.errors import CellError
from netns.compare.fabric import Ideal, links_that_can_fail
from netns.compare.grid import Condition
from netns.compare.hosts import Hosts
from netns.compare.outcome import FlowOutcome, Outcome, State, accounts, shares, together
from netns.compare.traffic import Flow
from netns.faults.faults import fail
from netns.faults.runner import ScheduleRunner
from netns.lab.lab import Lab
from netns.observe.machine import Ticks
from netns.programs import tool

MPTCP: Final = "mptcp"
LISTEN_WITHIN_S: Final = 20.0
READY_WITHIN_S: Final = 20.0
START_AFTER_S: Final = 0.1
"""From the last `ready` to the start: every worker has read the line by then."""
_MAX_SUBFLOWS: Final = 8  # of the kernel's path manager (MPTCP_PM_ADDR_MAX)
_FIRST_FLOW: Final = 1  # 0 is the worker's own


@dataclass(slots=True)
class _Watched:
    """What was seen of a cell while it ran."""

    arrived: dict[str, int] = field(default_factory=dict)
    """By host: bytes so far."""
    seconds: dict[int, float] = field(default_factory=dict)
    """By flow: its completion time."""
    events: list[tuple[float, str]] = field(default_factory=list)
    busiest_failed: bool = False


class Measurement:
    """One cell's. Make it, `run` it once."""

    def __init__(
        self, lab: Lab, *, transport: str, flows: Sequence[Flow], condition: Condition, timeout_s: float
    ) -> None:
        self._lab = lab
        self._transport = transport
        self._flows = dict(enumerate(flows, _FIRST_FLOW))
        self._condition = condition
        self._timeout_s = timeout_s
        self._seen = _Watched()
        self._start_at = 0.0
        self._link_bytes: dict[str, int] = {}

    def run(self) -> Outcome:
        """Measure."""
        state, reason = State.OK, None
        with Hosts() as hosts:
            ticks = _ticks()
            try:
                self._prepare(hosts)
                ticks = _ticks()
                if not self._watch(hosts):
                    state, reason = (
                        State.TIMEOUT,
                        f"stopped after {self._timeout_s:g} s with {self._arrived()} received",
                    )
            except CellError as error:
                state, reason = State.FAILED, str(error)
            ended_at = time.monotonic()
            now = _ticks()
            hosts.finish()
            path_shares = self._path_shares()
            return self._outcome(
                hosts,
                state=state,
                reason=reason,
                watched_s=ended_at - self._start_at if self._start_at else 0.0,
                path_shares=path_shares,
                busy=now.share(now.busy - ticks.busy, since=ticks),
            )

    # -- the start ----------------------------------------------------------------------------------------------------

    def _prepare(self, hosts: Hosts) -> None:
        """Start a worker on each host, tell each its part, and set the time of the start."""
        senders = {flow.source for flow in self._flows.values()}
        taking_part = [
            host
            for host in self._lab.topology.hosts
            if host in senders or any(flow.destination == host for flow in self._flows.values())
        ]
        if self._transport == MPTCP:
            for host in taking_part:
                self._allow_subflows(host, sends=host in senders)
        for host in taking_part:
            hosts.start(self._lab, host=host, arguments=self._arguments(host))
        ports = {host: event["port"] for host, event in hosts.until_all("listening", within_s=LISTEN_WITHIN_S).items()}
        for host in taking_part:
            hosts.workers[host].say(**self._plan(host, ports))
        hosts.until_all("ready", within_s=READY_WITHIN_S)
        self._link_bytes = self._bytes_of_links()
        self._start_at = time.monotonic() + START_AFTER_S
        for host in taking_part:
            hosts.workers[host].say(start_at=self._start_at)

    def _arguments(self, host: str) -> list[str]:
        arguments = ["--transport", self._transport, "--listen", self._lab.address(host)]
        spines = self._lab.topology.spines
        if self._transport == MPTCP and spines:
            arguments += ["--bind", self._lab.pinned_addresses(host)[spines[0]]]
        return arguments

    def _plan(self, host: str, ports: Mapping[str, int]) -> dict[str, Any]:
        own = [
            [number, self._lab.address(flow.destination), ports[flow.destination], flow.size_bytes, flow.at_s]
            for number, flow in self._flows.items()
            if flow.source == host
        ]
        arriving = {number: flow.size_bytes for number, flow in self._flows.items() if flow.destination == host}
        return {"flows": own, "arriving": arriving}

    def _allow_subflows(self, host: str, *, sends: bool) -> None:
        """Let MPTCP open one subflow over each spine, from the sender's pinned addresses.

        The sender opens them by itself (endpoint type `subflow`), so no announcement can be lost.
        """
        spines = self._lab.topology.spines[:_MAX_SUBFLOWS]
        self._ip(host, "mptcp", "limits", "set", "subflows", str(max(1, len(spines))))
        for spine in spines[1:] if sends else ():  # the first subflow is bound to the first spine's address
            self._ip(host, "mptcp", "endpoint", "add", self._lab.pinned_addresses(host)[spine], "subflow")

    def _ip(self, host: str, *arguments: str) -> None:
        """Run ip(8) on `host`, as pyroute2 lacks support for the path manager of MPTCP."""
        command = self._lab.command(host, [tool("ip"), *arguments])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise CellError(f"ip {' '.join(arguments)}: {reason}")

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _watch(self, hosts: Hosts) -> bool:
        """Wait until all flows are complete; return False if they are not in time. Raises CellError."""
        schedule = ScheduleRunner(self._lab, on_event=lambda at_s, text: self._seen.events.append((at_s, text)))
        schedule.begin(self._condition.events, at=self._start_at)
        give_up_at = self._start_at + self._timeout_s
        while len(self._seen.seconds) < len(self._flows):
            now = time.monotonic()
            if now >= give_up_at:
                return False
            if schedule.next_at is not None and now >= schedule.next_at:
                schedule.step()
                continue
            hosts.check()
            for worker, event in hosts.wait(until=min(give_up_at, schedule.next_at or give_up_at)):
                self._note(worker.host, event)
        return True

    def _note(self, host: str, event: Mapping[str, Any]) -> None:
        if event["event"] == "flow":
            self._seen.seconds[event["number"]] = event["seconds"]
        elif event["event"] == "progress":
            self._seen.arrived[host] = event["bytes"]
            fails_at = self._condition.busiest_link_fails_at
            if fails_at is not None and not self._seen.busiest_failed and self._arrived_share() >= fails_at:
                self._fail_busiest_link()

    def _fail_busiest_link(self) -> None:
        self._seen.busiest_failed = True
        now = self._bytes_of_links()
        link = max(now, key=lambda name: now[name] - self._link_bytes[name])
        fail(self._lab, link)
        self._seen.events.append((time.monotonic() - self._start_at, f"fail {link}, which had carried most"))

    def _arrived_share(self) -> float:
        return sum(self._seen.arrived.values()) / sum(flow.size_bytes for flow in self._flows.values())

    def _arrived(self) -> str:
        return f"{100 * self._arrived_share():.0f} %"

    def _bytes_of_links(self) -> dict[str, int]:
        """Return the bytes that each link between switches has carried so far, in both directions."""
        counters = self._lab.counters()
        return {
            name: counters[name]["ab"]["bytes"] + counters[name]["ba"]["bytes"]
            for name in links_that_can_fail(self._lab.topology)
        }

    def _path_shares(self) -> dict[str, float]:
        """Return each spine's share of the bytes since the start."""
        now, topology = self._bytes_of_links(), self._lab.topology
        return shares(
            {
                spine: sum(
                    now[link.name] - self._link_bytes.get(link.name, 0)
                    for link in topology.links_of[spine]
                    if link.name in now
                )
                for spine in topology.spines
            }
        )

    # -- its figures --------------------------------------------------------------------------------------------------

    def _outcome(
        self,
        hosts: Hosts,
        *,
        state: State,
        reason: str | None,
        watched_s: float,
        path_shares: Mapping[str, float],
        busy: float | None,
    ) -> Outcome:
        seen, ideal = self._seen, Ideal(self._lab.topology)
        flows = tuple(
            FlowOutcome(
                flow.size_bytes,
                flow.at_s,
                seen.seconds.get(number),
                round(ideal.seconds(flow.source, flow.destination, size_bytes=flow.size_bytes), 6),
            )
            for number, flow in self._flows.items()
        )
        elapsed_s, size_bytes = max(0.0, watched_s), sum(seen.arrived.values())
        progress = together(
            [(event["seconds"], event["bytes"]) for event in worker.events if event["event"] == "progress"]
            for worker in hosts.workers.values()
        )
        if state is State.OK:
            elapsed_s = max(flow.at_s + (flow.seconds or 0.0) for flow in flows)
            size_bytes = sum(flow.size_bytes for flow in flows)
            progress = (*(sample for sample in progress if sample[0] < elapsed_s), (elapsed_s, size_bytes))
        stall_ms, resent_fraction = accounts(worker.last("account") for worker in hosts.workers.values())
        return Outcome(
            state=state,
            reason=reason,
            flows=flows,
            size_bytes=size_bytes,
            elapsed_s=round(elapsed_s, 6),
            progress=progress,
            longest_stall_ms=stall_ms,
            resent_fraction=resent_fraction,
            path_shares=path_shares,
            events=tuple((round(at_s, 3), text) for at_s, text in seen.events),
            note=(self._untested(elapsed_s) if state is State.OK else None) or self._lacking_subflows(hosts),
            backend=self._lab.backend,
            machine_busy=None if busy is None else round(busy, 3),
        )

    def _untested(self, elapsed_s: float) -> str | None:
        """Return what of the condition came too late to matter."""
        happened = [what for at_s, what in self._seen.events if at_s < elapsed_s]
        if self._condition.busiest_link_fails_at is not None and not happened:
            return "all had arrived before the link failed"
        late = [event for event in self._condition.events if event.at_us / 1e6 > elapsed_s]
        return f"all had arrived before {late[0]}" if late else None

    def _lacking_subflows(self, hosts: Hosts) -> str | None:
        known = [worker.last("account") for worker in hosts.workers.values()]
        subflows = [event["subflows"] for event in known if event is not None and event["subflows"] is not None]
        wanted = len(self._lab.topology.spines[:_MAX_SUBFLOWS])
        if subflows and min(subflows) < wanted:
            return f"{min(subflows)} of {wanted} subflows of a connection existed at the end"
        return None


def _ticks() -> Ticks:
    return Ticks.parse(Path("/proc/stat").read_text())
