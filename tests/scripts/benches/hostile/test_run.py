"""scripts.benches.hostile: a short run with real processes."""

from __future__ import annotations

import pytest

from scripts.benches.hostile.run import measure, worker
from scripts.harness.errors import BenchError
from tests.dying import assert_leaves_nothing


@pytest.mark.root
def test_measure__transfer_survives() -> None:
    figures = measure(6000, seed=3)
    assert figures["packets"] >= 6000
    assert figures["lies"] > 10
    assert (figures["transfer_ok"], figures["wrong_bytes"], figures["crashes"]) == (1, 0, 0)
    assert figures["amplification_ratio"] <= 3
    assert figures["rss_growth_mb"] <= 16


def test_worker__ends_with_a_bench_that_is_killed() -> None:
    module = "scripts.benches.hostile.transfer"
    assert_leaves_nothing(
        f"""
from scripts.benches.hostile.run import worker
with worker("receiver", "{module}", "keys", "receive") as receiver:
    port = str(receiver.event("listening")["port"])
    with worker("sender", "{module}", "keys", "send", "127.0.0.1", port) as sender:
        sender.event("sending")
        print(receiver.process.pid, sender.process.pid, flush=True)
        sender.event("never")
""",
        processes=2,
    )


def test_worker__end_is_an_error_with_the_last_line() -> None:
    refused = pytest.raises(BenchError, match=r"broken ended.*Error")
    with worker("broken", "scripts.benches.hostile.attack") as broken, refused:
        broken.event("anything")
