"""srd.io.rx: trains of small datagrams, which land in one slot."""

from __future__ import annotations

import numpy as np

from srd.proto.wire.data import Burst
from tests.srd.io.exchange import Receiver, content, source

SEED = 12


def test_receive__payloads_of_a_train_of_small_messages_are_made_contiguous() -> None:
    """It lands with the headers between the payloads; all payloads but the first are copied, and counted."""
    payload = content(64 * 60, seed=SEED)
    with source() as one, Receiver() as two:
        one.fill(payload)
        places = np.arange(60, dtype=np.uint64)[::-1] * np.uint64(64) + np.uint64(one.region.address)
        burst = Burst(two.address, 3, 0, 7, 0, 60, 0, 0, 64, 0, 0, 0, 0, 64 * 60, 64, 0, places)
        one.transmit(burst)
        two.receive(packets=60)
        (received,) = two.bursts
        assert (received.batch, received.count, received.payload_bytes) == (True, 60, 60 * 64)
        for index in range(60):
            at = received.payload_offset + index * 64
            assert two.region.array[at : at + 64].tobytes() == payload[(59 - index) * 64 :][:64]
        assert two.queue.bytes_copied == 59 * 64


def test_receive__small_messages_without_memory_are_dropped() -> None:
    with source() as one, Receiver(chunks=1) as two:
        one.fill(bytes(64))
        places = np.zeros(9, np.uint64) + np.uint64(one.region.address)
        for slot in range(2):
            one.transmitter.add(
                Burst(two.address, 3, 9 * slot, 7, 9 * slot, 9, 0, 0, 64, 0, 0, 0, 0, 64 * 9, 64, 0, places)
            )
        assert one.transmitter.flush(one.socket)
        assert two.receive_batch().no_memory == {7}
