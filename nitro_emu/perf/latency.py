"""Round trips, one at a time, as perftest's ib_send_lat, ib_write_lat and ib_read_lat.

A SEND and a WRITE are answered by the same: half of the round trip is the time of one. A WRITE has an immediate,
because the packets of a message arrive in any order, so that no byte of it says that it is complete. A READ is answered
by the card alone: all of the round trip is its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from nitro_emu.abi.limits import MAX_RECV_SGE_BYTES
from nitro_emu.perf import pattern
from nitro_emu.perf.endpoint import INLINE_BYTES, PerfEndpoint, Room
from nitro_emu.perf.plan import Operation, Plan
from nitro_emu.verbs import RecvRequest, SendFlags, SendRequest, Sge, WcOpcode
from srd.perf.figures import LatencyFigures

DEPTH: Final = 16
"""Receive requests that are posted, and send requests that may be open. One is in use at a time; the others cover a
completion that is late."""

WARM_UP: Final = 10
"""Round trips that are not counted: the first opens the connection between the cards."""


def room_for(plan: Plan) -> Room:
    """Return what an end needs: memory for what it sends, and behind it for what it receives."""
    return Room(payload_bytes=2 * max(plan.possible_sizes), sends=DEPTH, receives=DEPTH)


class RoundTrips:
    """One end of the measurement. At the server `prepare` and `serve` each size, at the client `measure` it."""

    def __init__(self, endpoint: PerfEndpoint, plan: Plan) -> None:
        """Post the receive requests, for all sizes, as each is posted again when it has completed."""
        self._endpoint = endpoint
        self._plan = plan
        self._half = max(plan.possible_sizes)
        self._open = 0  # send requests
        self._arrived = 0  # messages
        memory = endpoint.memory
        landing = Sge(memory.address + self._half, min(self._half, MAX_RECV_SGE_BYTES), memory.lkey)
        self._received = RecvRequest(sges=(landing,))
        if plan.operation != Operation.READ:
            endpoint.qp.post_recv(*[self._received] * DEPTH)

    def prepare(self, size_bytes: int) -> None:
        """Write what the client reads."""
        pattern.fill(self._endpoint.payload[:size_bytes], start=size_bytes)

    def serve(self, size_bytes: int) -> None:
        """Answer the round trips of one size. Raises PerfError."""
        if self._plan.operation == Operation.READ:
            return
        post = self._poster(size_bytes)
        outgoing, incoming = self._payloads(size_bytes)
        for number in range(WARM_UP + self._plan.iterations):
            self._await_message()
            if self._plan.check:
                pattern.check(incoming, start=number)
                pattern.fill(outgoing, start=number + 1)
            self._endpoint.qp.post_recv(self._received)
            self._post(post)
        self._await_sends()

    def verify(self, count: int, *, size_bytes: int, start: int) -> None:
        """Nothing is left to verify: each message is compared when it has arrived."""

    def measure(self, size_bytes: int) -> LatencyFigures:
        """Make the round trips of one size, and return their figures. Raises PerfError."""
        measure, share = (self._read, 1) if self._plan.operation == Operation.READ else (self._ping, 2)
        times_ns = [measured // share for measured in measure(size_bytes)[WARM_UP:]]
        return LatencyFigures.of(times_ns, size_bytes=size_bytes)

    def _ping(self, size_bytes: int) -> list[int]:
        post, check = self._poster(size_bytes), self._plan.check
        outgoing, incoming = self._payloads(size_bytes)
        times_ns = []
        for number in range(WARM_UP + self._plan.iterations):
            if check:
                pattern.fill(outgoing, start=number)
            began_ns = time.perf_counter_ns()
            self._post(post)
            self._await_message()
            times_ns.append(time.perf_counter_ns() - began_ns)
            if check:
                pattern.check(incoming, start=number + 1)
            self._endpoint.qp.post_recv(self._received)
        self._await_sends()
        return times_ns

    def _read(self, size_bytes: int) -> list[int]:
        post, check = self._poster(size_bytes), self._plan.check
        _, incoming = self._payloads(size_bytes)
        times_ns = []
        for _ in range(WARM_UP + self._plan.iterations):
            if check:
                incoming[:] = pattern.PERIOD  # which is not in the pattern
            began_ns = time.perf_counter_ns()
            self._post(post)
            self._await_sends()
            times_ns.append(time.perf_counter_ns() - began_ns)
            if check:
                pattern.check(incoming, start=size_bytes)
        return times_ns

    def _payloads(self, size_bytes: int) -> tuple[pattern.Payload, pattern.Payload]:
        """Return what is sent, and what is received."""
        payload = self._endpoint.payload
        return payload[:size_bytes], payload[self._half : self._half + size_bytes]

    # -- requests -----------------------------------------------------------------------------------------------

    def _poster(self, size_bytes: int) -> Callable[[], None]:
        """Return what posts one request."""
        return (
            self._send_poster(size_bytes) if self._plan.operation == Operation.SEND else self._rdma_poster(size_bytes)
        )

    def _send_poster(self, size_bytes: int) -> Callable[[], None]:
        endpoint = self._endpoint
        request = SendRequest(
            endpoint.ah,
            endpoint.remote.qpn,
            endpoint.remote.qkey,
            sges=(Sge(endpoint.memory.address, size_bytes, endpoint.memory.lkey),),
            flags=SendFlags.SIGNALED | (SendFlags.INLINE if size_bytes <= INLINE_BYTES else SendFlags(0)),
        )
        return lambda: endpoint.qp.post_send(request)

    def _rdma_poster(self, size_bytes: int) -> Callable[[], None]:
        endpoint, builder = self._endpoint, self._endpoint.qp.builder
        ah, remote, memory = endpoint.ah, endpoint.remote, endpoint.memory
        is_read = self._plan.operation == Operation.READ
        sge = Sge(memory.address + (self._half if is_read else 0), size_bytes, memory.lkey)
        target = remote.memory if is_read else remote.memory + self._half

        def post() -> None:
            builder.start()
            if is_read:
                builder.rdma_read(remote.rkey, address=target)
            else:
                builder.rdma_write(remote.rkey, address=target, immediate=0)
            builder.set_ud_address(ah, remote_qpn=remote.qpn, remote_qkey=remote.qkey)
            builder.set_sge(sge)
            builder.complete()

        return post

    def _post(self, post: Callable[[], None]) -> None:
        while self._open == DEPTH:
            self._take_completions()
        post()
        self._open += 1

    def _await_message(self) -> None:
        while not self._arrived:
            self._take_completions()
        self._arrived -= 1

    def _await_sends(self) -> None:
        while self._open:
            self._take_completions()

    def _take_completions(self) -> None:
        for completion in self._endpoint.completions():
            if completion.opcode >= WcOpcode.RECV:
                self._arrived += 1
            else:
                self._open -= 1
