"""Many streams of one peer across the reference fabric with loss: two processes, every byte compared at both ends."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from tests.integration.streams_end import COUNT
from tests.srd.cli.processes import Process

END = Path(__file__).with_name("streams_end.py")
LOSSY = Shape(delay_us=500, rate_bps=250_000_000, loss_percent=1)


@pytest.mark.root
def test_streams__every_byte_over_a_lossy_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRD_HOME", str(tmp_path))
    topology = replace(leaf_spine(shape=LOSSY, seed=71), name=f"ts{os.getpid()}")
    with Lab.up(topology, backend="relay") as lab:
        host = lab.address("h2")
        with Process(lab.command("h2", [sys.executable, str(END), "listen", host])) as there:
            port = json.loads(there.stdout.next() or "")["port"]
            with Process(lab.command("h1", [sys.executable, str(END), "connect", host, str(port)])) as here:
                ends = [json.loads(end.stdout.next() or "") for end in (here, there)]
                assert [end.wait() for end in (here, there)] == [0, 0], (here.stderr.all(), there.stderr.all())
        dropped = sum(counters["ab"]["dropped"] + counters["ba"]["dropped"] for counters in lab.counters().values())
    for end in ends:
        assert end["right"] == [True] * COUNT
    assert ends[0]["retransmitted"] > 0
    assert dropped > 0, "nothing was lost: this test shows nothing"
