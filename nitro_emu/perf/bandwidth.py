"""Many messages at a time in one direction, as perftest's ib_send_bw, ib_write_bw and ib_read_bw.

With `check` every payload is compared: each message of a round has memory of its own (a slot), and a round of WRITEs is
followed by a comparison at the server, for which the clock is stopped. A SEND is compared when it has arrived.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nitro_emu.perf import pattern
from nitro_emu.perf.endpoint import PerfEndpoint, Room
from nitro_emu.perf.plan import MAX_DEPTH, Operation, PerfError, Plan
from nitro_emu.verbs import SendOp, byte_lengths
from srd.perf.figures import BandwidthFigures

RECEIVE_DEPTH_FACTOR: Final = 4
"""Receive requests for each request that the client has at a time, as with perftest: a receiver that is slow to post
them again would refuse messages."""

MAX_SLOTS_BYTES: Final = 64 << 20
"""Memory of the slots."""

_RDMA: Final = {Operation.WRITE: SendOp.RDMA_WRITE, Operation.READ: SendOp.RDMA_READ}


def room_for(plan: Plan) -> Room:
    """Return what an end needs."""
    return Room(
        payload_bytes=max(_slots(plan, size_bytes=size) * size for size in plan.possible_sizes),
        sends=plan.depth,
        receives=_receive_depth(plan),
    )


def _receive_depth(plan: Plan) -> int:
    return min(RECEIVE_DEPTH_FACTOR * plan.depth, MAX_DEPTH)


def _slots(plan: Plan, *, size_bytes: int) -> int:
    """Return how many messages have memory of their own. Without `check`, all that is sent is the same memory."""
    if plan.operation == Operation.SEND:
        return _receive_depth(plan)
    return max(1, min(plan.depth, MAX_SLOTS_BYTES // size_bytes)) if plan.check else 1


class Stream:
    """One end of the measurement. At the server `prepare` and `serve` each size, at the client `measure` it."""

    def __init__(self, endpoint: PerfEndpoint, plan: Plan) -> None:
        self._endpoint = endpoint
        self._plan = plan
        self._posted = 0  # receive requests of this size

    # -- the server ---------------------------------------------------------------------------------------------

    def prepare(self, size_bytes: int) -> None:
        """Post the receive requests, or write what the client reads."""
        if self._plan.operation == Operation.SEND:
            self._posted = min(_receive_depth(self._plan), self._plan.iterations)
            self._post_receives(np.arange(self._posted), size_bytes=size_bytes)
        elif self._plan.check:
            for slot in range(_slots(self._plan, size_bytes=size_bytes)):
                pattern.fill(self._slot(slot, size_bytes=size_bytes), start=slot)

    def serve(self, size_bytes: int) -> None:
        """Receive the messages of one size, if they are SENDs. Raises PerfError."""
        if self._plan.operation != Operation.SEND:
            return
        received = 0
        while received < self._plan.iterations:
            found = self._endpoint.completion_array(_receive_depth(self._plan))
            if (byte_lengths(found) != size_bytes).any():
                raise PerfError(f"a message of {byte_lengths(found).tolist()} bytes instead of {size_bytes}")
            if self._plan.check:
                for slot in found["wr_id"]:
                    pattern.check(self._slot(int(slot), size_bytes=size_bytes))
            received += len(found)
            again = min(len(found), self._plan.iterations - self._posted)
            if again:
                self._posted += again
                self._post_receives(found["wr_id"][:again], size_bytes=size_bytes)

    def _post_receives(self, slots: npt.NDArray[Any], *, size_bytes: int) -> None:
        memory = self._endpoint.memory
        self._endpoint.qp.post_recvs(
            slots.astype(np.uint64) * np.uint64(size_bytes) + np.uint64(memory.address),
            lengths=size_bytes,
            lkey=memory.lkey,
            wr_ids=slots,
        )

    def verify(self, count: int, *, size_bytes: int, start: int) -> None:
        """Compare the slots that a round of WRITEs has filled. Raises PerfError."""
        for slot in range(min(count, _slots(self._plan, size_bytes=size_bytes))):
            pattern.check(self._slot(slot, size_bytes=size_bytes), start=start + slot)

    # -- the client ---------------------------------------------------------------------------------------------

    def measure(self, size_bytes: int) -> BandwidthFigures:
        """Send the messages of one size, and return the figures. Raises PerfError."""
        plan = self._plan
        if not plan.check:
            pattern.fill(self._slot(0, size_bytes=size_bytes), start=0)
        round_of = _slots(plan, size_bytes=size_bytes) if plan.check else plan.iterations
        progress = [(0, 0)]
        for first in range(0, plan.iterations, round_of):
            count = min(round_of, plan.iterations - first)
            if plan.check:
                self._fill_slots(count, size_bytes=size_bytes, start=first)
            self._round(count, size_bytes=size_bytes, progress=progress)
            if plan.check:
                self._check_round(count, size_bytes=size_bytes, start=first)
        return BandwidthFigures.of(progress, size_bytes=size_bytes, depth=plan.depth)

    def _fill_slots(self, count: int, *, size_bytes: int, start: int) -> None:
        for slot in range(count):
            payload = self._slot(slot, size_bytes=size_bytes)
            if self._plan.operation == Operation.READ:
                payload[:] = pattern.PERIOD  # which is not in the pattern
            else:
                pattern.fill(payload, start=start + slot)

    def _check_round(self, count: int, *, size_bytes: int, start: int) -> None:
        if self._plan.operation == Operation.WRITE:
            self._endpoint.exchange.send(round=count, size=size_bytes, start=start)
            self._endpoint.exchange.receive()
        elif self._plan.operation == Operation.READ:
            for slot in range(count):
                pattern.check(self._slot(slot, size_bytes=size_bytes), start=slot)

    def _round(self, count: int, *, size_bytes: int, progress: list[tuple[int, int]]) -> None:
        """Send so many messages; note after each poll the time, less pauses between rounds, and how many are done."""
        depth = self._plan.depth
        elapsed_ns, done_before = progress[-1]
        began_ns = time.perf_counter_ns() - elapsed_ns
        posted = done = 0
        while done < count:
            if room := min(depth - (posted - done), count - posted):
                self._post(posted, count=room, size_bytes=size_bytes)
                posted += room
            done += len(self._endpoint.completion_array(depth))
            progress.append((time.perf_counter_ns() - began_ns, done_before + done))

    def _post(self, first: int, *, count: int, size_bytes: int) -> None:
        endpoint, remote = self._endpoint, self._endpoint.remote
        wr_ids = np.arange(first, first + count, dtype=np.uint64)
        slots = _slots(self._plan, size_bytes=size_bytes) if self._plan.check else 1
        offsets = wr_ids % np.uint64(slots) * np.uint64(size_bytes)
        addresses = offsets + np.uint64(endpoint.memory.address)
        if self._plan.operation == Operation.SEND:
            endpoint.qp.post_sends(
                endpoint.ah,
                remote_qpn=remote.qpn,
                remote_qkey=remote.qkey,
                addresses=addresses,
                lengths=size_bytes,
                lkey=endpoint.memory.lkey,
                wr_ids=wr_ids,
            )
            return
        endpoint.qp.post_rdma(
            _RDMA[self._plan.operation],
            endpoint.ah,
            remote_qpn=remote.qpn,
            remote_qkey=remote.qkey,
            addresses=addresses,
            lengths=size_bytes,
            lkey=endpoint.memory.lkey,
            remote_addresses=offsets + np.uint64(remote.memory),
            rkey=remote.rkey,
            wr_ids=wr_ids,
        )

    def _slot(self, slot: int, *, size_bytes: int) -> pattern.Payload:
        return self._endpoint.payload[slot * size_bytes : (slot + 1) * size_bytes]
