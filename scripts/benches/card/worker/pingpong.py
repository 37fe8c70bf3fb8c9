"""Ping-pong: SENDs of 64 B and their echo, one at a time, between two applications that poll.

The echo is sent from the buffer that the message landed in, which is posted again when the echo has completed. Each
message is different, and each echo is compared with it.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Final

import numpy as np

from nitro_emu.efa.verbs import RecvRequest, SendRequest, Sge
from scripts.benches.card.worker.endpoint import QKEY, CardEndpoint, Room, require_all_ok, take_singly
from scripts.benches.card.worker.meeting import connected, listening
from scripts.benches.veth.worker.pingpong import percentiles
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd.perf.sweep.progress import WARM_UP

BYTES: Final = 64
END_BYTES: Final = 1
"""Length of the message after the last round trip."""
SLOTS: Final = 16
"""Buffers of each end. One is in use at a time; the others cover completions that are polled later."""
ROOM: Final = Room((SLOTS + 1) * BYTES, sends=SLOTS, receives=SLOTS)
"""The slots, and behind them what the measuring end sends."""
NUMBER_BYTES: Final = 8
SEED: Final = 1
FEWEST: Final = 200
"""Round trips of a measurement: with fewer, a 99th percentile is no more than the longest one."""


def _slots(endpoint: CardEndpoint) -> list[Sge]:
    memory = endpoint.memory
    return [Sge(memory.address + slot * BYTES, BYTES, memory.lkey) for slot in range(SLOTS)]


def _send_request(endpoint: CardEndpoint, sge: Sge, *, wr_id: int = 0) -> SendRequest:
    return SendRequest(endpoint.ah, endpoint.remote.qpn, QKEY, wr_id=wr_id, sges=(sge,))


def receive(run_dir: Path, *, device: str) -> int:
    """Echo messages until the other end says that it was the last."""
    with CardEndpoint(run_dir, device, room=ROOM) as endpoint:
        slots = _slots(endpoint)
        receives = [RecvRequest(slot, (sge,)) for slot, sge in enumerate(slots)]
        with listening([endpoint]) as exchange:
            endpoint.qp.post_recv(*receives)
            exchange.send({"posted": True})
            echoes = [_send_request(endpoint, sge, wr_id=slot) for slot, sge in enumerate(slots)]
            _echo(endpoint, receives, echoes)
            exchange.recv()
    emit("received")
    return 0


def _echo(endpoint: CardEndpoint, receives: list[RecvRequest], echoes: list[SendRequest]) -> None:
    qp, send_cq, recv_cq = endpoint.qp, endpoint.send_cq, endpoint.recv_cq
    while True:
        (message,) = take_singly(recv_cq, 1)
        if message.byte_len == END_BYTES:
            return
        qp.post_send(echoes[message.wr_id])
        done = send_cq.poll(SLOTS)
        require_all_ok(done)
        for completion in done:
            qp.post_recv(receives[completion.wr_id])


def send(
    run_dir: Path,
    *,
    device: str,
    host: str,
    port: int,
    seconds: float,
    warm_up: int = WARM_UP,
    fewest: int = FEWEST,
) -> int:
    """Measure round trips for `seconds`, or for longer until they are `fewest`."""
    with CardEndpoint(run_dir, device, room=ROOM) as endpoint, connected(host, port, [endpoint]) as exchange:
        exchange.recv()
        samples = measure(endpoint, seconds=seconds, warm_up=warm_up, fewest=fewest)
        exchange.send({"ended": True})
    emit("measured", figures=percentiles([1e9 * sample for sample in samples]), round_trips=len(samples))
    return 0


def measure(endpoint: CardEndpoint, *, seconds: float, warm_up: int, fewest: int) -> list[float]:
    """Return the duration of each round trip after the first `warm_up`.

    Raises BenchError when an echo differs from what was sent.
    """
    qp, send_cq, recv_cq = endpoint.qp, endpoint.send_cq, endpoint.recv_cq
    slots, samples = _slots(endpoint), list[float]()
    receives = [RecvRequest(slot, (sge,)) for slot, sge in enumerate(slots)]
    qp.post_recv(*receives)
    outgoing = Sge(endpoint.memory.address + SLOTS * BYTES, BYTES, endpoint.memory.lkey)
    ping, payload = _send_request(endpoint, outgoing), endpoint.payload
    tail = np.random.default_rng(SEED).bytes(BYTES - NUMBER_BYTES)
    until = time.perf_counter() + seconds
    for number in itertools.count():
        sent = number.to_bytes(NUMBER_BYTES, "little") + tail
        payload[SLOTS * BYTES :] = np.frombuffer(sent, np.uint8)
        started = time.perf_counter()
        if started >= until and len(samples) >= fewest:
            break
        qp.post_send(ping)
        (echo,) = take_singly(recv_cq, 1)
        took_s = time.perf_counter() - started
        at = echo.wr_id * BYTES
        if echo.byte_len != BYTES or payload[at : at + BYTES].tobytes() != sent:
            raise BenchError(f"{BYTES} bytes came back as {echo.byte_len} other bytes")
        qp.post_recv(receives[echo.wr_id])
        require_all_ok(take_singly(send_cq, SLOTS))
        if number >= warm_up:
            samples.append(took_s)
    qp.post_send(_send_request(endpoint, Sge(outgoing.address, END_BYTES, outgoing.lkey)))
    take_singly(send_cq, 1)
    return samples
