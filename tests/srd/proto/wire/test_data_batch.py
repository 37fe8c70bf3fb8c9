"""srd.proto.wire.data: batches (bursts of messages of one packet each) among other bursts of one train."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.wire.data import ABORTED, Burst, Opcode, received_bursts_untrusted
from tests.srd.proto.wire.test_data import arrival, burst


def batch(*, count: int, first: int, length: int) -> Burst:
    places = np.arange(count, dtype=np.uint64) * 1000
    return burst(count=count, psn=first, path_sequence=first, message=first, length=length,
                 payload_bytes=count * length, segment_bytes=length, payload_addresses=places)  # fmt: skip


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    length=st.integers(1, 900),
    message_first=st.booleans(),
)
def test_received_bursts_untrusted__batches_and_messages_of_one_train(
    counts: list[int], length: int, *, message_first: bool
) -> None:
    """A PSN separates the batches; a long message of the same packet size precedes or follows them."""
    bursts, psn = [], 5
    for count in counts:
        bursts.append(batch(count=count, first=psn, length=length))
        psn += count + 1
    long = burst(count=3, psn=psn, path_sequence=psn, message=psn, length=3 * length,
                 payload_bytes=3 * length, segment_bytes=length)  # fmt: skip
    bursts.insert(0 if message_first else len(bursts), long)
    came = arrival(*bursts)
    at = 0
    for got, sent in zip(received_bursts_untrusted(came), bursts, strict=True):
        assert (got.psn, got.count, got.message, got.length) == (sent.psn, sent.count, sent.message, sent.length)
        assert got.batch == (sent.payload_addresses is not None and sent.count > 1)
        assert (got.payload_offset, got.payload_bytes) == (came.payload_offset + at * length, sent.count * length)
        at += sent.count


def test_received_bursts_untrusted__the_last_message_of_a_batch_is_cut_short() -> None:
    came = arrival(batch(count=8, first=3, length=100))
    came.payload_bytes -= 1
    found = [(got.count, got.batch, got.payload_bytes) for got in received_bursts_untrusted(came)]
    assert found == [(7, True, 700), (1, False, 99)]


@pytest.mark.parametrize("flags", [Opcode.WRITE, ABORTED, Opcode.RESPONSE, 0x40])
@pytest.mark.parametrize("count", [2, 20])
def test_received_bursts_untrusted__only_sends_make_batches(flags: int, count: int) -> None:
    sent = batch(count=count, first=3, length=100)
    sent.flags = flags
    assert [(got.count, got.batch) for got in received_bursts_untrusted(arrival(sent))] == [(1, False)] * count
