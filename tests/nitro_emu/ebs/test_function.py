"""A volume as a virtual function of a card that is a process, with servers as processes and a real NBD client."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nitro_emu.card.config import load
from nitro_emu.card.control import ask as ask_card
from nitro_emu.ebs.attachment import ask
from nitro_emu.errors import ConfigError
from srd.secure.keys import create
from tests.nitro_emu.cards import running_card
from tests.nitro_emu.ebs.nbd.client import READ, WRITE, Client
from tests.nitro_emu.ebs.volume_processes import command, volume_servers
from tests.nitro_emu.processes import card_file, loopback_address, loopback_vf
from tests.nitro_emu.trusted_cards import VFS, Site
from tests.nitro_emu.vpc_cards import ControlPlane
from tests.patience import until
from tests.programs import run_to_end

TEXT = b"the quick brown fox jumps over the lazy dog " * 1000


def volume_vf(directory: Path, name: str = "vol_1", *, more: str = "") -> str:
    security = f"security: {{mode: psk, psk_file: {directory / 'psk'}}}"
    catalog = f"catalog: {directory / 'volumes.db'}"
    return loopback_vf(name, more=f"kind: ebs, volume: vol-1, {catalog}, {security}{more}")


def replicas(run_dir: Path) -> set[str]:
    return set(ask_card(run_dir, "status")["vfs"]["vol_1"]["replicas"].values())


def scraped(address: str) -> dict[tuple[str, ...], float]:
    """Return how many requests there were, by kind and volume."""
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.labels["command"], sample.labels["volume"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "ebs_operations_total"
    }


async def test_a_card_serves_a_volume_beside_a_device(tmp_path: Path) -> None:
    card, metrics = tmp_path / "card", f"{loopback_address()}:9100"
    vfs, key = [volume_vf(tmp_path), loopback_vf()], f"key_file: {tmp_path / 'card.key'}\nmetrics: {metrics}\n"
    with volume_servers(tmp_path) as servers:
        servers.create(size="8M")
        for is_new in (True, False):
            with running_card(card, vfs=vfs, more=key) as running:
                run_dir, path = running.run_dir, running.socket("vol_1")
                await until(path.is_socket)
                client = await Client.attached(path, name=b"vol_1")
                if is_new:
                    assert (await client.asks(WRITE, offset=1000, data=TEXT)).error == 0
                    servers.kill(1)
                    assert (await client.asks(WRITE, offset=1000, data=TEXT)).error == 0
                assert (await client.asks(READ, offset=1000, length=len(TEXT))).payload[8:] == TEXT
                status = ask_card(run_dir, "status")["vfs"]["vol_1"]
                assert (status["kind"], status["state"], status["clients"]) == ("ebs", "attached", 1)
                wanted = {"complete", "away"} if is_new else {"complete"}
                await until(lambda: replicas(run_dir) == wanted)  # noqa: B023 - it is waited for here
                assert ask(run_dir, "vol_1", "status")["requests"]["read"]["operations"] == 1
                assert scraped(metrics)["read", "vol_1"] == 1
                table = run_to_end([sys.executable, "-m", "nitro_emu.cli", "metrics", "--run-dir", str(run_dir)])
                assert ["read_operations", "1"] in [line.split() for line in table.stdout.splitlines()]
                second = run_to_end(command("attach", "vol-1", "--card-file", str(servers.card), *servers.options))
                assert "another writer has it" in second.stderr
                client.close()
            assert not path.exists()
            if is_new:
                servers.start(1)
        stored = servers.stored()
    assert not any(b"quick brown" in each for each in stored)


async def test_a_chip_gives_the_key_of_a_volume_to_a_card_as_signed(tmp_path: Path) -> None:
    """The card is confined, and has a device in a VPC besides."""
    site = Site(tmp_path, ControlPlane(tmp_path), vfs={"card-a": VFS["card-a"]})
    site.configure("card-a", more=f"  - {{{volume_vf(tmp_path)}}}\n")
    site.sign("card-a")
    with volume_servers(tmp_path) as servers:
        servers.create("--card-file", str(site.config("card-a")), size="8M")
        for is_new in (True, False):
            with site.running(["card-a"]) as cards:
                path = cards["card-a"].run_dir / "vol_1.sock"
                await until(path.is_socket)
                client = await Client.attached(path, name=b"vol_1")
                if is_new:
                    assert (await client.asks(WRITE, offset=1000, data=TEXT)).error == 0
                assert (await client.asks(READ, offset=1000, length=len(TEXT))).payload[8:] == TEXT
                client.close()
        create(tmp_path / "other.key")
        other = card_file(tmp_path, vfs=[volume_vf(tmp_path)], more=f"key_file: {tmp_path / 'other.key'}\n")
        refused = run_to_end([sys.executable, "-m", "nitro_emu.cli", "run", str(other)])
        assert "volume vol-1: its key was made for another card" in refused.stderr.splitlines()[-1]
        stored = servers.stored()
    assert not any(b"quick brown" in each for each in stored)


async def test_it_waits_for_its_servers(tmp_path: Path) -> None:
    with volume_servers(tmp_path) as servers:
        servers.create(size="8M")
        servers.end()
        with running_card(
            tmp_path / "card", vfs=[volume_vf(tmp_path)], more=f"key_file: {tmp_path / 'card.key'}\n"
        ) as running:
            assert ask_card(running.run_dir, "status")["vfs"]["vol_1"]["state"].startswith("attaching")
            for number in range(3):
                servers.start(number)
            await until(running.socket("vol_1").is_socket)


def test_another_card_does_not_get_the_key(tmp_path: Path) -> None:
    create(tmp_path / "other.key")
    with volume_servers(tmp_path) as servers:
        servers.create(size="8M")
    config = card_file(tmp_path, vfs=[volume_vf(tmp_path)], more=f"key_file: {tmp_path / 'other.key'}\n")
    result = run_to_end([sys.executable, "-m", "nitro_emu.cli", "run", str(config)])
    assert result.returncode == 1
    assert "volume vol-1: its key was made for another card" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (", mtu: 1500", "mtu stands beside kind ebs, which does not use it; remove it"),
        (", iops: 0", "iops"),
        (", interface: {subnet: 10.0.0.0/8}", "interface"),
    ],
)
def test_wrong_settings(tmp_path: Path, more: str, reason: str) -> None:
    config = card_file(tmp_path, vfs=[volume_vf(tmp_path, more=more)])
    with pytest.raises(ConfigError, match=reason):
        load(config)
