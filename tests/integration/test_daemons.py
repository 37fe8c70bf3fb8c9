"""Both daemons as processes across a relay fabric: loss, a spine that dies, a receiver that dies, nothing left."""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from netns.backends.kernel.netlink import run_tool
from netns.lab.lab import Lab
from netns.lab.state import ROOT
from netns.netem.shape import Shape
from netns.topology.dumbbell import dumbbell
from netns.topology.model import leaf_spine
from tests.srd.cli.processes import Process, command, long_file, names
from tests.srd.loopback import content

LOSSY = Shape(delay_us=500, rate_bps=250_000_000, loss_percent=1)
SLOW = replace(LOSSY, rate_bps=2_000_000, limit_packets=10)
SEED = 71
_numbers = count()
# Two hosts and four spines; each leaf-spine link loses 1 % of what passes, both ways.
pytestmark = [pytest.mark.root, pytest.mark.lab(leaf_spine(shape=LOSSY, seed=SEED), backend="relay")]


def lab_name() -> str:
    return f"td{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


def target(lab: Lab) -> str:
    """Where h2 listens, on the default port: over IPv6 if the lab has it."""
    return lab.address("h2", version=6 if lab.topology.ipv6 else 4)


def receiver(lab: Lab, output: Path, *options: str) -> Process:
    return Process(
        lab.command("h2", command("recv", "-B", target(lab), "--output", str(output), "--json-lines", *options))
    )


def sender(lab: Lab, file: Path) -> Process:
    """One that does not come back: what ends it is the transport's own word."""
    return Process(lab.command("h1", command("send", str(file), target(lab), "--json-lines", "--retry-for", "0")))


def file_of(directory: Path, size_bytes: int) -> Path:
    path = directory / "file.bin"
    path.write_bytes(content(size_bytes, seed=SEED))
    return path


def uplinks(lab: Lab) -> dict[str, dict[str, int]]:
    counters = lab.counters()
    return {spine: counters[f"leaf1-{spine}"]["ab"] for spine in lab.topology.spines}


def reshape(lab: Lab, spine: str, shape: Shape) -> None:
    for leaf in lab.topology.leaves:
        lab.reshape(f"{leaf}-{spine}", ab=shape, ba=shape)


def check_delivered(sent: dict[str, Any], received: dict[str, Any], *, file: Path, output: Path) -> None:
    digest = blake3(file.read_bytes()).hexdigest()
    assert (sent["digest"], sent["verified"], received["digest"]) == (digest, True, digest)
    assert (output / file.name).read_bytes() == file.read_bytes()
    assert names(output) == [file.name]


def delivered(lab: Lab, file: Path, output: Path) -> dict[str, Any]:
    """Send a file to a receiver that ends with it; return what the sender says of it."""
    with receiver(lab, output, "--once") as there:
        there.event("listening")
        with sender(lab, file) as here:
            sent = here.event("sent")
            assert here.wait() == 0
        received = there.event("received")
        assert there.wait() == 0
        assert here.stderr.all() == there.stderr.all() == []
    check_delivered(sent, received, file=file, output=output)
    return sent


def test_daemons__a_file_crosses_a_lossy_fabric_over_all_spines(lab: Lab, tmp_path: Path, output: Path) -> None:
    file = file_of(tmp_path, 16 << 20)
    sent = delivered(lab, file, output)
    crossed = uplinks(lab)
    assert all(counters["packets"] > 50 for counters in crossed.values()), crossed
    assert any(counters["dropped"] for counters in crossed.values()), "nothing was lost: this test shows nothing"
    assert sent["retransmitted_fraction"] > 0
    assert sum(path["packets"] > 0 for path in sent["paths"]) > 4


@pytest.mark.long
def test_daemons__by_satellite(tmp_path: Path, output: Path) -> None:
    """600 ms and 20 Mbit/s, with a buffer of one bandwidth-delay product."""
    file = file_of(tmp_path, 4 << 20)
    bottleneck = Shape(delay_us=300_000, rate_bps=20_000_000, limit_packets=1500)
    topology = dumbbell(bottleneck=bottleneck, mtu=1500, name=lab_name(), seed=SEED)
    with Lab.up(topology, backend="relay") as lab:
        sent = delivered(lab, file, output)
    assert min(path["rtt_us"] for path in sent["paths"] if path["rtt_us"]) >= 600_000


def test_daemons__over_ipv6(tmp_path: Path, output: Path) -> None:
    file = file_of(tmp_path, 4 << 20)
    topology = replace(leaf_spine(name=lab_name(), shape=LOSSY, seed=SEED), ipv6=True)
    with Lab.up(topology, backend="relay") as lab:
        delivered(lab, file, output)
        crossed = uplinks(lab)
    assert all(counters["packets"] > 20 for counters in crossed.values()), crossed


def test_daemons__a_spine_dies_in_the_middle(lab: Lab, tmp_path: Path, output: Path) -> None:
    """The links are a gate: before the spine is dead the file needs longer than anyone here waits for an event."""
    file = file_of(tmp_path, 24 << 20)
    for spine in lab.topology.spines:
        reshape(lab, spine, SLOW)
    with receiver(lab, output, "--once") as there:
        there.event("listening")
        with sender(lab, file) as here:
            progress = there.event("progress")
            assert progress["bytes"] < file.stat().st_size
            before = uplinks(lab)["spine2"]
            reshape(lab, "spine2", replace(LOSSY, loss_percent=100))
            for spine in set(lab.topology.spines) - {"spine2"}:
                reshape(lab, spine, LOSSY)
            sent = here.event("sent")
            assert here.wait() == 0
        received = there.event("received")
        assert there.wait() == 0
    check_delivered(sent, received, file=file, output=output)
    print({key: sent[key] for key in ("seconds", "goodput_bps", "retransmitted_fraction")}, received)
    after = uplinks(lab)["spine2"]
    assert before["packets"] > 0
    assert after["dropped"] - before["dropped"] > 10, "nobody used the dead spine: this test shows nothing"
    assert sent["retransmitted_fraction"] > 0


def test_daemons__a_killed_receiver_ends_the_sender(lab: Lab, tmp_path: Path, output: Path) -> None:
    with receiver(lab, output) as there:
        there.event("listening")
        with sender(lab, long_file(tmp_path)) as here:
            there.event("progress")
            there.kill(signal.SIGKILL)
            assert here.wait() == 1
            (error,) = here.stderr.all()
            assert "no packet for" in error
    assert "long.bin" not in names(output)


def test_daemons__nothing_is_left_after_down(tmp_path: Path, output: Path) -> None:
    """Daemons that still run inside the lab end with it; links, namespaces and records are as before."""

    def machine() -> tuple[object, ...]:
        return (
            [line.split()[0] for line in run_tool("ip", "-brief", "link").splitlines()],
            [path.name for path in Path("/run/netns").glob(f"{name}-*")],
            (ROOT / name).exists(),
        )

    name = lab_name()
    before = machine()
    made = Lab.up(leaf_spine(name=name, shape=LOSSY, seed=SEED), backend="relay")
    try:
        with receiver(made, output) as there:
            there.event("listening")
            with sender(made, long_file(tmp_path)) as here:
                there.event("progress")
                made.down()
                assert there.wait() == 0  # SIGTERM ends a daemon in order
                assert here.wait() != 0
    finally:
        made.down()
    assert machine() == before
    assert "long.bin" not in names(output)


def test_daemons__a_limited_directory_and_a_pipe_cross_a_lossy_fabric(lab: Lab, tmp_path: Path, output: Path) -> None:
    """--limit holds over the whole directory, which takes the time that it needs at that rate."""
    tree, limit_bps = tmp_path / "tree", 8_000_000
    for number in range(30):
        (tree / f"d{number % 3}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 3}" / f"{number}.bin").write_bytes(content(100_000 * (number % 2), seed=number))
    (tree / "large.bin").write_bytes(content(2 << 20, seed=SEED))
    size_bytes = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    with receiver(lab, output, "--once") as there:
        there.event("listening")
        argv = command("send", str(tree), target(lab), "--json-lines", "--limit", f"{limit_bps // 1_000_000}mbit")
        with Process(lab.command("h1", argv)) as here:
            summary = here.event("summary")
            assert here.wait() == 0
        assert there.wait() == 0
    assert (summary["delivered"], summary["bytes"], summary["failed"]) == (31, size_bytes, 0)
    assert summary["seconds"] >= (size_bytes - (1 << 20)) * 8 / limit_bps  # one chunk may go at once
    sent, arrived = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tree, output / "tree")
    )
    assert arrived == sent
    assert any(counters["dropped"] for counters in uplinks(lab).values()), "nothing was lost: this test shows nothing"
    payload = content(3 << 20, seed=SEED)
    with Process(lab.command("h2", ["sh", "-c", f"{shlex.join(to_stdout(lab))} > {output}/piped"])) as there:
        assert ", file goes to standard output" in (there.stderr.next() or "")
        (tmp_path / "piped").write_bytes(payload)
        send = f"cat {tmp_path}/piped | {shlex.join(command('send', '-', target(lab)))}"
        with Process(lab.command("h1", ["sh", "-c", send])) as here:
            assert here.wait() == 0
        assert there.wait() == 0
    assert (output / "piped").read_bytes() == payload


def to_stdout(lab: Lab) -> list[str]:
    return command("recv", "-B", target(lab), "--output", "-")
