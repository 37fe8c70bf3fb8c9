"""netns.observe.capture: both directions of a link, at the receiving ends."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from netns.errors import BackendError, TopologyError
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.observe.capture import BATCH, capture
from netns.topology.model import leaf_spine
from tests.netns.exchange import PORT, udp_socket
from tests.netns.observe.test_pcapng import blocks, options
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.root,
    pytest.mark.lab(leaf_spine(spines=1, shape=Shape(delay_us=1000)), backend="relay", scope="module"),
]


def ping_pong(lab: Lab, rounds: int) -> None:
    with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
        for number in range(rounds):
            one.sendto(b"ping%d" % number, (lab.address("h2"), PORT))
            assert two.recv(10) == b"ping%d" % number
            two.sendto(b"pong%d" % number, (lab.address("h1"), PORT))
            assert one.recv(10) == b"pong%d" % number


def test_capture__both_directions_with_timestamps(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    player = threading.Thread(target=ping_pong, args=(lab, 5))
    captured = capture(lab, "leaf1-spine1", path=path, packets=10, seconds=PATIENCE_S, ready=player.start)
    player.join()
    assert (captured.packets, captured.dropped) == (10, 0)
    named = [options(body[8:])[2] for kind, body in blocks(path) if kind == 1]
    assert named == [b"leaf1>spine1", b"spine1>leaf1"]
    packets = [body for kind, body in blocks(path) if kind == 6]
    seen = [(struct.unpack_from("=I", body)[0], body[20 + 42 :][:4]) for body in packets]
    assert sorted(seen) == [(0, b"ping")] * 5 + [(1, b"pong")] * 5
    times = sorted((high << 32 | low) for high, low in (struct.unpack_from("=II", body, 4) for body in packets))
    assert times[-1] - times[0] > 8 * 1_000_000, "each way takes a millisecond and more"
    assert [struct.unpack_from("=I", body)[0] for kind, body in blocks(path) if kind == 5] == [0, 1]


def test_capture__does_not_exceed_the_packets_asked_for(lab: Lab, tmp_path: Path) -> None:
    """All packets wait in the socket when the recording looks for the first time."""
    path = tmp_path / "n.pcapng"
    captured = capture(lab, "leaf1-spine1", path=path, packets=3, seconds=PATIENCE_S, ready=lambda: ping_pong(lab, 10))
    assert captured.packets == 3
    assert len([kind for kind, _ in blocks(path) if kind == 6]) == 3


def test_capture__in_order_of_time(lab: Lab, tmp_path: Path) -> None:
    """Packets of both directions wait when the recording looks for the first time."""
    path = tmp_path / "o.pcapng"
    capture(lab, "leaf1-spine1", path=path, packets=20, seconds=PATIENCE_S, ready=lambda: ping_pong(lab, 10))
    packets = [body for kind, body in blocks(path) if kind == 6]
    assert [body[20 + 42 :][:5] for body in packets] == [
        b"%s%d" % (w, n) for n in range(10) for w in (b"ping", b"pong")
    ]


def test_capture__stops_on_request(lab: Lab, tmp_path: Path) -> None:
    assert capture(lab, "leaf1-spine1", path=tmp_path / "d", stop=lambda: True).packets == 0
    assert capture(lab, "leaf1-spine1", path=tmp_path / "d", overwrite=True, seconds=0.05).packets == 0


def test_capture__that_is_behind_when_it_stops_has_all_that_had_arrived(lab: Lab, tmp_path: Path) -> None:
    """More than one batch of each direction waits when the recording looks for the first time."""
    asked, rounds = iter([False]), 2 * BATCH
    captured = capture(
        lab,
        "leaf1-spine1",
        path=tmp_path / "f",
        stop=lambda: next(asked, True),
        ready=lambda: ping_pong(lab, rounds),
    )
    assert (captured.packets, captured.dropped) == (2 * rounds, 0)
    assert len([kind for kind, _ in blocks(tmp_path / "f") if kind == 6]) == 2 * rounds


def test_capture__bad_flow(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"^link spine1: no such link"):
        capture(lab, "spine1", path=tmp_path / "e")
    with pytest.raises(BackendError, match="exists already; name another"):
        capture(lab, "leaf1-spine1", path=tmp_path, stop=lambda: True)
