"""scripts.benches.veth.plain: the C pairs compile, move data and report it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from scripts.benches.veth.plain import TCP, UDP, PlainPairs, plain_pairs

HOST = "127.0.0.1"
SECONDS = 0.3


@pytest.fixture(scope="module")
def pairs() -> Iterator[PlainPairs]:
    with plain_pairs() as compiled:
        yield compiled


@pytest.mark.root  # they choose cubic, and SO_RCVBUFFORCE
@pytest.mark.parametrize(("name", "options"), [(TCP, ()), (UDP, ("9000",)), (UDP, ("1500",))])
def test_both_ends_report_what_they_moved(pairs: PlainPairs, name: str, options: tuple[str, ...]) -> None:
    receiver = pairs.receiver(name, HOST, warm_up_s=0, options=options)
    with subprocess.Popen(receiver, stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        port = json.loads(receiving.stdout.readline())["port"]
        sender = pairs.sender(name, HOST, port=port, warm_up_s=0, seconds=SECONDS, options=options)
        sent = json.loads(subprocess.run(sender, stdout=subprocess.PIPE, text=True, check=True).stdout)
        received = json.loads(receiving.stdout.readline())
    assert receiving.returncode == 0
    assert (sent["event"], received["event"]) == ("sent", "received")
    for end in (sent, received):
        assert end["bytes"] > 0
        assert end["seconds"] > 0
        assert end["cpu_s"] > 0


@pytest.mark.parametrize("name", [TCP, UDP])
def test_a_sender_without_a_receiver_fails_in_one_line(pairs: PlainPairs, name: str) -> None:
    options = () if name == TCP else ("9000",)
    sender = pairs.sender(name, HOST, port=9, warm_up_s=0, seconds=SECONDS, options=options)
    done = subprocess.run(sender, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
