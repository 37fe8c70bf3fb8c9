"""scripts.benches.card.cards: settings, counters, and cards that do not start or do not end well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nitro_emu.card.config import load
from nitro_emu.peers.vf_config import DEFAULT_PORT
from scripts.benches.card.cards import PSK, CardOptions, settings, two_cards
from scripts.harness.errors import BenchError
from srd.secure.config import Plain, Psk
from tests.scripts.benches.card.loopback import loopback_pair

MANY = 64


@pytest.mark.parametrize("encrypted", [False, True])
def test_settings(tmp_path: Path, *, encrypted: bool) -> None:
    file = tmp_path / "card.yaml"
    (tmp_path / "psk").touch(mode=0o600)
    (tmp_path / "psk").write_text(PSK)
    options = CardOptions(vfs=MANY, encrypted=encrypted, busy_poll=True)
    file.write_text(settings(options, name="a", address="10.0.0.1", directory=tmp_path))
    config = load(file)
    assert (config.run_dir, config.busy_poll, config.log_level) == (tmp_path / "a", True, "error")
    assert [(vf.name, vf.port) for vf in config.vfs] == [(f"efa_{n}", DEFAULT_PORT + n) for n in range(MANY)]
    security = config.security_of(config.vfs[-1])
    assert security == (Psk(bytes(range(32))) if encrypted else Plain())


def test_two_cards__one_does_not_start() -> None:
    unusable = loopback_pair(sender="192.0.2.1")  # TEST-NET-1
    with (
        pytest.raises(BenchError, match=r"the card-a ended with status 1: .*192\.0\.2\.1"),
        two_cards(unusable, CardOptions()),
    ):
        pytest.fail("they run")


def test_two_cards__one_dies() -> None:
    running = two_cards(loopback_pair(), CardOptions())
    cards = running.__enter__()
    cards.b.process.kill()
    os.waitid(os.P_PID, cards.b.process.popen.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(BenchError, match="card-b"):
        cards.b.counters()
    with pytest.raises(BenchError, match="card-b ended with status"):
        running.__exit__(None, None, None)
    with pytest.raises(BenchError, match="card-b ended with status"):
        _ = cards.b.cpu_s
    assert not cards.a.run_dir.parent.exists()
