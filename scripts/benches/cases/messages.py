"""Messages: of 1,000 messages in flight every tenth loses one packet; the delay that this causes to the others.

4 spines (see reference_fabric.py). 1,000 messages of 32 KiB (4 packets) are posted at once: 32 MB, exactly the receive
window, so that none waits for credit. In the run with loss the second packet of every tenth message is dropped on its
first transmission, before it reaches the fabric; retransmissions are not dropped.

`undisturbed_ratio`: median completion time (from posting to delivery) of the 900 messages without loss, in the run with
loss over the run without. `disturbed_ratio`: the same of the 100 others. In an ordered stream both would be similar.

It is a program, and no scenario's file: links lose packets by chance, and no user needs one that loses the second
packet of a message.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import RECEIVER, SENDER, fabric
from scripts.harness.errors import BenchError
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import Burst
from srd.sim.simulation import Simulation

MESSAGES: Final = 1000
MESSAGE_BYTES: Final = 32 << 10
EVERY: Final = 10
LOST_PACKET: Final = 1
TIMEOUT_S: Final = 10.0


class OneLoss:
    """Drops one packet of every tenth message, once."""

    def __init__(self) -> None:
        self.lost: set[int] = set()

    def __call__(self, burst: Burst, index: int) -> bool:
        chosen = burst.message % EVERY == 0 and burst.offset // burst.segment_bytes + index == LOST_PACKET
        if not chosen or burst.message in self.lost:
            return False
        self.lost.add(burst.message)
        return True


def measure(seed: int, _seconds: float) -> Round:
    lossless_ms, lossy_ms = _times_ms(None, seed=seed), _times_ms(OneLoss(), seed=seed)

    def ratio(*, disturbed: bool) -> float:
        chosen = [number for number in range(MESSAGES) if (number % EVERY == 0) == disturbed]
        return median(lossy_ms[number] for number in chosen) / median(lossless_ms[number] for number in chosen)

    return Round(
        seed,
        {
            "undisturbed_ratio": ratio(disturbed=False),
            "disturbed_ratio": ratio(disturbed=True),
            "median_ms": median(lossy_ms.values()),
            "last_ms": max(lossy_ms.values()),
        },
    )


def _times_ms(loss: OneLoss | None, *, seed: int) -> dict[int, float]:
    """Message -> its completion time."""
    simulation = Simulation(fabric(spines=4, name="messages", seed=seed), config=ProtocolConfig(), seed=seed)
    (connection,) = simulation.connect([(SENDER, RECEIVER)])
    connection.source.loses = loss
    started_ns, deliveries = simulation.now_ns, connection.destination.deliveries
    for number in range(MESSAGES):
        connection.post(length=MESSAGE_BYTES, immediate=number)
    connection.source.serve()
    if not simulation.run(seconds=TIMEOUT_S, done=lambda: len(deliveries) == MESSAGES):
        raise BenchError(f"{len(deliveries)} of {MESSAGES} messages were delivered in {TIMEOUT_S:g} s")
    simulation.require_no_failures()
    if loss is not None and len(loss.lost) != MESSAGES // EVERY:
        raise BenchError(f"{len(loss.lost)} packets were lost, of {MESSAGES // EVERY}")
    return {delivery.immediate: (delivery.at_ns - started_ns) / 1e6 for delivery in deliveries}
