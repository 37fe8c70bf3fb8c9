"""`nitro-volume`: what it says, and an attached volume in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nitro_emu.cli.volume import cli
from nitro_emu.cli.volume_ask import histogram_text
from nitro_emu.ebs.catalog import Catalog
from nitro_emu.ebs.statistics import BOUNDS_US, Histogram
from srd.secure.keys import create
from tests.nitro_emu.ebs.nbd.client import READ, WRITE, Client
from tests.nitro_emu.ebs.volume_processes import Servers, attached, command, volume_servers
from tests.nitro_emu.processes import loopback_address
from tests.patience import until
from tests.programs import run_to_end
from tests.srd.cli.processes import Process, run_here

Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Called:
    """Run the command line in this process, for commands that end by themselves."""
    monkeypatch.setenv("NITRO_VOLUME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("NITRO_VOLUME_CATALOG", str(tmp_path / "volumes.db"))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(cli, ["nitro-volume", *arguments], capsys=capsys, patch=monkeypatch)

    return call


def fails(result: subprocess.CompletedProcess[str], *, status: int, error: str) -> None:
    assert (result.returncode, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("nitro-volume: ")
    assert error in line


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["attach", "Vol 1", "--memory", "1M"], "'Vol 1' is no name of a volume; use 1 to 32 of a-z"),
        (["attach", "vol-1", "--memory", "1"], "1 is too small; at least 4096 bytes"),
        (["attach", "vol-1", "--memory", "1M", "--iops", "0"], "0 is not in the range 1<=x<=256000"),
        (["attach", "vol-1", "--memory", "1M", "--nbd", "h:70000"], "'h:70000' is not HOST"),
        (["attach", "vol-1"], "give --card-file FILE, for a volume on servers, or --memory SIZE"),
        (
            ["attach", "vol-1", "--memory", "1M", "--card-file", "card.yaml"],
            "give --card-file FILE, for a volume on servers, or",
        ),
        (["serve", "disk"], "anyone could write; give --psk-file, --cert"),
        (
            ["create", "vol-1", "--size", "5000", "--card-file", "c.yaml", "--server", "a=b:1"],
            "5000: is no multiple of 4096",
        ),
        (
            ["create", "vol-1", "--size", "1M", "--card-file", "c.yaml", "--server", "b:1"],
            "'b:1' is not DOMAIN=HOST[:PORT]",
        ),
    ],
)
def test_wrong_usage(called: Called, words: list[str], error: str) -> None:
    fails(called(*words), status=2, error=error)


def test_what_is_not_attached(called: Called, tmp_path: Path) -> None:
    assert called("ls").stdout == f"no volume is in {tmp_path / 'volumes.db'}, or attached in {tmp_path / 'run'}\n"
    for words in (["status", "vol-1"], ["detach", "vol-1"]):
        fails(called(*words), status=1, error="volume vol-1 is not attached here; attach it: nitro-volume attach vol-1")


def test_a_socket_that_its_process_has_left_is_replaced(called: Called, tmp_path: Path) -> None:
    with attached(tmp_path / "run", "--memory", "1M") as volume:
        volume.process.kill(signal.SIGKILL)
        volume.process.wait()
    result = called("ls")
    assert "is not attached here" in result.stderr
    with attached(tmp_path / "run", "--memory", "1M") as volume:
        volume.detach()


async def test_an_attached_volume_is_listed_shown_and_detached(called: Called, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with attached(run_dir, "--memory", "1M", "--iops", "5000") as volume:
        client = await Client.attached(run_dir / "vol-1.sock")
        data = b"x" * 5000
        assert (await client.asks(WRITE, offset=100, data=data)).error == 0
        assert (await client.asks(READ, offset=100, length=5000)).payload[8:] == data
        (row,) = json.loads(called("ls", "--json").stdout)["volumes"]
        assert row == {
            "name": "vol-1",
            "size_bytes": 1 << 20,
            "clients": 1,
            "servers": [],
            "addresses": [volume.uri],
        }
        found = json.loads(called("status", "vol-1", "--json").stdout)
        assert found["provisioned"] == {"iops": 5000, "bytes_per_s": 5000 << 18}
        assert [found["requests"][command]["bytes"] for command in ("read", "write")] == [5000, 5000]
        shown = called("status", "vol-1").stdout
        assert "latency of reads" in shown
        fails(called("detach", "vol-1"), status=1, error="1 NBD clients use it; end them first, or give --force")
        result = run_to_end(command("attach", "vol-1", "--memory", "1M"))
        fails(result, status=1, error="volume vol-1 is attached already")
        assert called("detach", "vol-1", "--force").returncode == 0
        assert await client.ended() == b""
        client.close()
        assert volume.process.wait() == 0
    assert list(run_dir.iterdir()) == []


def test_a_volume_on_servers(called: Called, tmp_path: Path) -> None:
    catalog = str(tmp_path / "volumes.db")
    with volume_servers(tmp_path) as servers:
        arguments = ["create", "vol-1", "--size", "8M", "--card-file", str(servers.card), *servers.options]
        result = called(*arguments, *servers.places[:2])
        fails(result, status=1, error="3 replicas need servers in 3 domains, and there are 2 (rack-0, rack-1)")
        created = called(*arguments, *servers.places)
        assert created.stdout.startswith("nitro-volume: vol-1: 8388608 bytes, 3 replicas at ")
        fails(called(*arguments, *servers.places), status=1, error="there is a volume vol-1 already")
        with servers.attached() as volume:
            (row,) = json.loads(called("ls", "--json").stdout)["volumes"]
            assert (row["name"], row["addresses"]) == ("vol-1", [volume.uri])
            assert row["servers"] == [f"{address}:4420" for address in servers.addresses]
            device = json.loads(called("status", "vol-1", "--json").stdout)["device"]
            assert device["replicas"] == dict.fromkeys(row["servers"], "complete")
            again = ["--run-dir", str(servers.run_dir), "--card-file", str(servers.card), *servers.options]
            second = run_to_end(command("attach", "vol-1", *again))
            holder = f"volume vol-1 is attached already, by process {volume.process.popen.pid}, which listens at"
            fails(second, status=1, error=holder)
            volume.detach()
        other = tmp_path / "other.yaml"
        other.write_text("vfs: [{name: efa_0, address: 127.0.0.1}]\nkey_file: other.key\n")
        create(tmp_path / "other.key")
        refused = run_to_end(
            command("attach", "vol-1", "--run-dir", str(servers.run_dir), "--card-file", str(other), *servers.options)
        )
        fails(refused, status=1, error="volume vol-1: its key was made for another card")
        scrubbed = called("scrub", "vol-1", *servers.options)
        assert (scrubbed.returncode, scrubbed.stderr) == (0, "")
        servers.kill(0)
        scrubbed = called("scrub", "vol-1", "--json", *servers.options)
        assert scrubbed.returncode == 1
        assert [report["failure"] is None for report in json.loads(scrubbed.stdout)["replicas"]] == [False, True, True]
    with Catalog(Path(catalog)) as known:
        assert [volume.name for volume in known.volumes()] == ["vol-1"]


async def test_servers_get_ciphertext_and_a_new_attachment_reads_it(called: Called, tmp_path: Path) -> None:
    text = b"the quick brown fox jumps over the lazy dog " * 1000
    with volume_servers(tmp_path) as servers:
        servers.create(size="8M")
        for is_new in (True, False):
            await written(servers, called, text, is_new=is_new)
        stored = servers.stored()
    assert sum(map(len, stored)) > 3 * len(text)
    assert not any(b"quick brown" in each for each in stored)


async def test_a_server_is_replaced_and_what_is_corrupt_is_repaired(called: Called, tmp_path: Path) -> None:
    text = b"the quick brown fox jumps over the lazy dog " * 1000
    with volume_servers(tmp_path) as servers:
        servers.create(size="8M")
        await written(servers, called, text)
        servers.addresses.append(loopback_address())
        servers.start(3)
        servers.kill(0)
        first, new = servers.addresses[0], servers.addresses[3]
        beside = run_to_end(command("replace", "vol-1", first, "--server", f"rack-1={new}", *servers.options))
        fails(beside, status=1, error=f"{new}:4420 would fail with {servers.addresses[1]}:4420")
        none = run_to_end(command("replace", "vol-1", new, "--server", f"rack-9={new}", *servers.options))
        fails(none, status=1, error=f"volume vol-1 is not on {new}:4420 but on {first}:4420, ")
        done = run_to_end(command("replace", "vol-1", first, "--server", f"rack-9={new}", *servers.options))
        assert done.stdout == f"nitro-volume: vol-1: {new}:4420 (rack-9) has replaced {first}:4420\n"
        servers.start(0)  # it comes back, and is no server of the volume any more
        servers.kill(1)
        await written(servers, called, text, is_new=False)
        servers.start(1)

        (data,) = (tmp_path / "server-3").glob("*/data")
        flip(data, 4096)
        scrubbed = run_to_end(command("scrub", "vol-1", "--json", *servers.options))
        rows = {row["server"]: row for row in json.loads(scrubbed.stdout)["replicas"]}
        assert rows[f"{new}:4420"] == {
            "server": f"{new}:4420", "corrupt_blocks": 1, "repaired": True, "failure": None,
        }  # fmt: skip
        assert scrubbed.returncode == 0
        again = run_to_end(command("scrub", "vol-1", *servers.options))
        assert [line.split()[1] for line in again.stdout.splitlines()[1:]] == ["0", "0", "0"]

        with servers.attached():
            await until(lambda: servers.replicas() == {"complete"})
            sound = data.read_bytes()
            flip(data, 8192)
            scrubbed = run_to_end(command("scrub", "vol-1", *servers.options))
            assert (scrubbed.returncode, "by its attachment" in scrubbed.stdout) == (0, True)
            await until(lambda: data.read_bytes() == sound)


def flip(path: Path, offset: int) -> None:
    """Change a byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def written(servers: Servers, called: Called, text: bytes, *, is_new: bool = True) -> None:
    """Attach the volume, write a text and read it, or read it only, and detach."""
    with servers.attached() as volume:
        client = await Client.attached(servers.run_dir / "vol-1.sock")
        if is_new:
            assert (await client.asks(WRITE, offset=1000, data=text)).error == 0
        assert (await client.asks(READ, offset=1000, length=len(text))).payload[8:] == text
        client.close()
        assert called("detach", "vol-1", "--force").returncode == 0
        assert volume.process.wait() == 0


def test_metrics_are_prometheus(tmp_path: Path) -> None:
    argv = command("attach", "vol-1", "--run-dir", str(tmp_path / "run"), "--memory", "1M", "--metrics", "127.0.0.1:0")
    with Process(argv) as process:
        url = process.line("metrics at ").rpartition(" ")[2]
        with urlopen(url) as answer:  # noqa: S310 - of our own process
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        process.kill(signal.SIGTERM)
        assert process.wait() == 0
    latency = families["ebs_latency_seconds"]
    assert latency.type == "histogram"
    assert sum(sample.name.endswith("_bucket") for sample in latency.samples) == 6 * (len(BOUNDS_US) + 1)
    assert {"ebs_operations", "ebs_performance_exceeded_iops_seconds", "ebs_queue_length"} <= families.keys()


def test_a_histogram_has_a_line_for_each_bucket_that_is_used() -> None:
    histogram = Histogram()
    for us in (17, 30, 33, 100, 1e9):
        histogram.add(us)
    lines = histogram_text(histogram.counts).splitlines()
    assert lines[0].split()[:5] == ["<=", "32", "us", "2", "40.000%"]
    assert lines[1].split()[:5] == ["<=", "64", "us", "1", "60.000%"]
    assert lines[-1].split()[:5] == [">", str(BOUNDS_US[-1]), "us", "1", "100.000%"]
    assert histogram.count == 5
