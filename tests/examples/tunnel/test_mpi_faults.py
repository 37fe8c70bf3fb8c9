"""examples.tunnel.mpi over a fabric that loses packets, and one where a spine dies in the middle."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.tunnel import mpi
from scripts.benches.tunnel.fabric import dead, loss, uplink_bytes
from tests.examples.tunnel.conftest import Network
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.root, pytest.mark.long]
SIZES = (65_536,)
BEGUN_BYTES = 300_000
"""On the wire of the spine that dies: MPI has begun with its collectives."""
CALLS = 20


def test_mpi__with_loss(tunnelled: Network) -> None:
    with loss(tunnelled.lab, 1.0):
        assert len(mpi.run(tunnelled.pair, sizes=SIZES, calls=10)) == 2


def test_mpi__while_a_spine_dies(tunnelled: Network) -> None:
    """Silently: no route changes. Over the fabric alone a connection on that spine never goes on."""
    lab = tunnelled.lab
    spine = lab.topology.spines[0]
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(mpi.run, tunnelled.pair, sizes=SIZES, calls=CALLS)
        give_up_at = time.monotonic() + PATIENCE_S
        while uplink_bytes(lab)[spine] < BEGUN_BYTES:
            assert time.monotonic() < give_up_at
        with dead(lab, spine):
            assert not ran.done(), "it was over before the spine died: make more calls"
            assert len(ran.result(timeout=PATIENCE_S)) == 2
