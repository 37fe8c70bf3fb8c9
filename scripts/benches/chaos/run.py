"""Runs one scenario, and checks the invariants.

The initiator opens a peer, and opens it again 10 ms after it ended. Both ends post their messages at the scheduled
times, if a peer is open then. The invariants, under all conditions:

1. No message is delivered twice, not even to two incarnations of a process. No byte of a write or read lands after it
   completed with OK, or after its immediate was delivered.
2. A delivered message has exactly the bytes that were sent; written and read bytes lie at the right address.
3. Nothing is written outside of registered memory, between the targets of the requests, or with a withdrawn key.
4. Every request completes with a status, unless its process was restarted.
5. A request that completed with OK was delivered, and was not flawed.
6. No behaviour of the network raises an exception in the core.

A request may end in error although its message was delivered: the sender cannot know whether only the ACK was lost.
"""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np

from netns.backends.virtual.fabric import VirtualFabric
from scripts.benches.chaos.host import ChaosHost
from scripts.benches.chaos.scenario import (
    BOUND_S,
    FAULTS_END_S,
    HOSTS,
    ChaosMessage,
    ChaosScenario,
    Flaw,
    MessageKind,
    scenario,
)
from scripts.benches.chaos.target import READABLE_FROM, Bytes, CheckedTarget
from srd.proto.events import Completion, Event, MessageAborted, PeerEnded, WriteReceived
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.sim.simulation import NS_PER_S

NOISE_BYTES: Final = 1 << 20
REOPEN_NS: Final = NS_PER_S // 100


@cache
def noise() -> Bytes:
    """Return bytes without a period, so that misplaced data is detected."""
    return np.random.default_rng(1).integers(0, 256, NOISE_BYTES, np.uint8)


@dataclass(slots=True)
class ChaosReport:
    seed: int
    violations: list[str] = field(default_factory=list)
    posted: int = 0
    delivered: int = 0
    """Delivered messages, and immediates of writes."""
    placed: int = 0
    """Writes and reads that completed with OK."""
    failed: int = 0
    """Requests that completed with an error."""
    damaged: int = 0
    restarts: int = 0


class ChaosRun:
    def __init__(self, what: ChaosScenario) -> None:
        self.what = what
        self.report = ChaosReport(what.seed, restarts=len(what.restarts))
        self.fabric = VirtualFabric(what.topology)
        self.delivered: Counter[int] = Counter()
        self.pending: dict[tuple[str, int, int], int] = {}
        """(host, its incarnation, request) -> number of the message."""
        self.ended: dict[int, Status] = {}
        self.targets: dict[int, CheckedTarget] = {}
        """Targets of the valid writes and reads."""
        self.hosts = {name: self._host(name) for name in HOSTS}
        self.initiator, self.responder = (self.hosts[name] for name in HOSTS)
        self._connecting = False

    def _host(self, name: str) -> ChaosHost:
        host = ChaosHost(self.fabric, name, scenario=self.what, noise=noise(), on_delivery=self._on_delivery)
        host.on_event = partial(self._on_event, host)
        return host

    def run(self) -> ChaosReport:
        for outage in self.what.outages:
            self.fabric.fail(outage.spine, at_ns=_ns(outage.at_s), for_ns=_ns(outage.seconds))
        for restart in self.what.restarts:
            self.fabric.at(_ns(restart.at_s), partial(self._restart, restart.host))
        for withdrawal in self.what.withdrawals:
            self.fabric.at(_ns(withdrawal.at_s), partial(self._withdraw, withdrawal.host))
        for number, message in enumerate(self.what.messages):
            self.fabric.at(_ns(message.at_s), partial(self._post, number, message))
        self.fabric.at(_ns(FAULTS_END_S), self._end_faults)
        self.fabric.at(0, self._open)
        self.fabric.run(until_ns=_ns(FAULTS_END_S))
        self.fabric.run(until_ns=_ns(BOUND_S), done=lambda: not self.pending)
        self._check_end()
        return self.report

    # -- timed actions ------------------------------------------------------------------------------------------

    def _open(self, _now_ns: int) -> None:
        if not self.initiator.peers and not self._connecting and self.fabric.now_ns < _ns(FAULTS_END_S):
            self._connecting = True
            self.initiator.connect(self.responder.address)
            self.initiator.serve()

    def _post(self, number: int, message: ChaosMessage, _now_ns: int) -> None:
        host = self.hosts[message.host]
        peer = next(reversed(host.peers.values()), None)  # the newest
        if peer is None:
            return
        request = host.post(peer, length=message.length, **self._work_request(number, message))
        self.pending[host.host, host.incarnations, request] = number
        self.report.posted += 1
        host.serve()
        if message.cancel_after_s is not None:
            at_ns = self.fabric.now_ns + _ns(message.cancel_after_s)
            self.fabric.at(at_ns, partial(self._cancel, host, host.incarnations, peer, request))

    def _work_request(self, number: int, message: ChaosMessage) -> dict[str, Any]:
        """Return a request's arguments without its length; its target expects it."""
        here = self.hosts[message.host]
        (there,) = (host for host in self.hosts.values() if host is not here)
        if message.kind is MessageKind.SEND:
            return {"payload_offset": message.payload_offset, "immediate": number}
        reads = message.kind is MessageKind.READ
        target = here.keys.current if reads else there.keys.current
        key = there.keys.current.read_key if reads else target.key
        offset = message.payload_offset - READABLE_FROM if reads else message.target_offset
        if message.flaw is Flaw.KEY:
            key ^= 1
        elif message.flaw is Flaw.RANGE:
            offset = (there.keys.readable_bytes if reads else target.size_bytes) - message.length + 1
        else:
            self.targets[number] = target
            target.expect(
                number, offset=message.target_offset, data=noise()[message.payload_offset :][: message.length]
            )
        if reads:
            local = {"local_key": target.key, "local_offset": message.target_offset}
            return {"opcode": Opcode.READ, "key": key, "offset": offset, "immediate": None, **local}
        immediate = number if message.kind is MessageKind.WRITE_WITH_IMMEDIATE else None
        remote = {"key": key, "offset": offset}
        return {"opcode": Opcode.WRITE, "payload_offset": message.payload_offset, "immediate": immediate, **remote}

    def _cancel(self, host: ChaosHost, incarnation: int, peer: int, request: int, _now_ns: int) -> None:
        if host.incarnations == incarnation:
            host.core.cancel(peer, request=request, now=host.now)
            host.serve()

    def _withdraw(self, name: str, _now_ns: int) -> None:
        self.hosts[name].withdraw()

    def _restart(self, name: str, _now_ns: int) -> None:
        host = self.hosts[name]
        self.pending = {key: number for key, number in self.pending.items() if key[0] != name}
        host.restart()
        if host is self.initiator:
            self._connecting = False
            self.fabric.at(self.fabric.now_ns + REOPEN_NS, self._open)

    def _end_faults(self, _now_ns: int) -> None:
        for host in self.hosts.values():
            host.end_faults()
        for link in self.fabric.links.values():
            if link.netem is not None:
                link.netem.reshape(replace(link.netem.shape, loss_percent=0, jitter_us=0))

    # -- events -------------------------------------------------------------------------------------------------

    def _on_event(self, host: ChaosHost, event: Event) -> None:
        match event:
            case Completion():
                number = self.pending.pop((host.host, host.incarnations, event.request), None)
                if number is None:
                    self._violation(f"{host.host}: request {event.request} completed, but was not open")
                else:
                    self._end(number, event.status)
            case WriteReceived():
                self._on_write_received(event)
                host.core.release(event.peer, size_bytes=0, messages=1, now=host.now)
            case MessageAborted():
                host.free_extents(event.released)
            case PeerEnded():
                host.on_peer_ended(event)
                if host is self.initiator:
                    self._connecting = False
                    self.fabric.at(self.fabric.now_ns + REOPEN_NS, self._open)

    def _end(self, number: int, status: Status) -> None:
        self.ended[number] = status
        message = self.what.messages[number]
        if status is not Status.OK or message.kind is MessageKind.SEND:
            return
        self.report.placed += 1
        if number not in self.targets:
            self._violation(f"message {number} must be refused ({message.flaw.name}), but completed with OK")
        elif message.kind is not MessageKind.WRITE_WITH_IMMEDIATE and not self.targets[number].arrived(number):
            self._violation(f"message {number} of {message.length} bytes completed with OK, but has not landed")

    def _on_write_received(self, event: WriteReceived) -> None:
        number = event.immediate
        self.delivered[number] += 1
        message = self.what.messages[number] if number < len(self.what.messages) else None
        if message is None or message.kind is not MessageKind.WRITE_WITH_IMMEDIATE or number not in self.targets:
            self._violation(f"the immediate of message {number} was delivered, but never sent")
        elif event.length != message.length or not self.targets[number].arrived(number):
            self._violation(
                f"the immediate of message {number} was delivered, but its {message.length} bytes have not landed"
            )

    def _on_delivery(self, number: int, data: bytes) -> None:
        self.delivered[number] += 1
        if number >= len(self.what.messages):
            self._violation(f"message {number} was delivered, but never sent")
            return
        message = self.what.messages[number]
        expected = noise()[message.payload_offset :][: message.length].tobytes()
        if data != expected:
            self._violation(f"message {number} of {message.length} bytes was delivered with {len(data)} wrong bytes")

    def _check_end(self) -> None:
        for number, times in self.delivered.items():
            if times > 1:
                self._violation(f"message {number} was delivered {times} times")
        for (host, _, request), number in self.pending.items():
            self._violation(f"{host}: request {request} (message {number}) has not completed after {BOUND_S:g} s")
        notified = (MessageKind.SEND, MessageKind.WRITE_WITH_IMMEDIATE)
        for number, status in self.ended.items():
            if status is Status.OK and not self.delivered[number] and self.what.messages[number].kind in notified:
                self._violation(f"message {number} completed with OK, but was not delivered")
        for name, end in self.hosts.items():
            for fault in (fault for target in end.keys.targets for fault in target.faults()):
                self._violation(f"{name}: {fault}")
        self.report.delivered = len(self.delivered)
        self.report.failed = sum(status is not Status.OK for status in self.ended.values())
        self.report.damaged = sum(host.damaged for host in self.hosts.values())

    def _violation(self, what: str) -> None:
        self.report.violations.append(what)


def run_scenario(seed: int) -> ChaosReport:
    """Run the scenario of a seed; an exception in the core is a violation."""
    run = ChaosRun(scenario(seed, noise_bytes=NOISE_BYTES))
    try:
        return run.run()
    except Exception as error:  # noqa: BLE001 - any exception of the core is a violation
        where = traceback.extract_tb(error.__traceback__)[-1]
        run.report.violations.append(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
        return run.report


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)
