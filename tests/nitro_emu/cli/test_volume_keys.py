"""The key of a card: from its file, or from its security chip, which measures first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from nitro_emu.cli.volume_keys import private_key, public_key
from nitro_emu.ebs.volume_key import make, unwrap
from nitro_emu.errors import ConfigError
from srd.secure.keys import create
from tests.nitro_emu.trusted_cards import Site
from tests.nitro_emu.vpc_cards import ControlPlane
from tests.programs import run_to_end

NAME = "card-a"
UNWRAP = """
import asyncio, sys
from pathlib import Path
from nitro_emu.cli.volume_keys import private_key
from nitro_emu.ebs.volume_key import unwrap
key = asyncio.run(private_key(Path(sys.argv[1])))
print(unwrap(bytes.fromhex(sys.argv[2]), card=key, volume="vol-1").hex())
"""


def test_the_key_of_a_file(tmp_path: Path) -> None:
    card = tmp_path / "card-a.yaml"
    card.write_text("vfs: [{name: efa_0, address: 127.0.0.1}]\nkey_file: card.key\n")
    with pytest.raises(ConfigError, match=r"card\.key"):
        public_key(card)
    create(tmp_path / "card.key")
    key, wrapped = make(card=public_key(card), volume="vol-1")
    assert unwrap(wrapped, card=asyncio.run(private_key(card)), volume="vol-1") == key


def unwrapped(card: Path, wrapped: bytes) -> subprocess.CompletedProcess[str]:
    """Unwrap in a process of its own, which loads no bytecode."""
    return run_to_end([sys.executable, "-X", "pycache_prefix=/dev/null", "-c", UNWRAP, str(card), wrapped.hex()])


def test_the_key_of_a_chip_is_for_what_was_signed_only(tmp_path: Path) -> None:
    site = Site(tmp_path, ControlPlane(tmp_path))
    site.configure(NAME)
    site.sign(NAME)
    key, wrapped = make(card=public_key(site.config(NAME)), volume="vol-1")
    with site.running_chip(NAME):
        found = unwrapped(site.config(NAME), wrapped)
        assert (found.returncode, found.stdout.strip()) == (0, key.hex()), found.stderr
        site.config(NAME).write_text(site.config(NAME).read_text() + "log_level: debug\n")
        refused = unwrapped(site.config(NAME), wrapped)
        assert refused.returncode == 1
        assert "SEALED" in refused.stderr
        assert key.hex() not in refused.stdout
