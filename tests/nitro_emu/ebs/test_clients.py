"""Others' tools as the oracle: what libnbd, qemu, fio and Linux' file system make of a volume.

`make test-volume` installs them (Debian: libnbd-bin, qemu-utils, fio) and runs this.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nitro_emu.ebs.attachment import ask
from tests.nitro_emu.ebs.volume_processes import Attached, Servers, attached, command, volume_servers
from tests.patience import PATIENCE_S, wait_until
from tests.programs import run_to_end

pytestmark = [pytest.mark.volume, pytest.mark.long]

SIZE = 128 << 20


def run(*argv: object, cwd: Path | None = None) -> str:
    words = [str(word) for word in argv]
    result = subprocess.run(words, check=False, capture_output=True, text=True, timeout=4 * PATIENCE_S, cwd=cwd)
    assert result.returncode == 0, (words, result.stdout, result.stderr)
    return result.stdout


@pytest.fixture(params=["memory", "servers"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attached]:
    """In memory, and on three servers, encrypted."""
    if request.param == "memory":
        with attached(tmp_path / "run", "--memory", "128M") as found:
            yield found
            found.detach()
        return
    with volume_servers(tmp_path) as servers:
        servers.create()
        with servers.attached() as found:
            yield found
            found.detach()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A file as large as the volume: bytes at random, and holes."""
    path = tmp_path / "image"
    with path.open("wb") as file:
        for at in (0, 20 << 20, 100 << 20):
            file.seek(at)
            file.write(os.urandom((7 << 20) + 1234))
        file.truncate(SIZE)
    return path


def test_nbdinfo(volume: Attached) -> None:
    (export,) = json.loads(run("nbdinfo", "--json", volume.uri))["exports"]
    expected = {"export-size": SIZE, "is_read_only": False, "contexts": ["base:allocation"], "block_size_minimum": 1}
    assert {key: export[key] for key in expected} == expected
    can = {key for key, value in export.items() if key.startswith("can_") and value}
    assert can == {"can_df", "can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"}
    listed = json.loads(run("nbdinfo", "--json", "--list", volume.uri))
    assert [each["export-name"] for each in listed["exports"]] == ["vol-1"]
    assert run("nbdinfo", "--map", volume.uri).split() == ["0", str(SIZE), "3", "hole,zero"]


def test_nbdcopy_both_ways(volume: Attached, image: Path, tmp_path: Path) -> None:
    run("nbdcopy", image, volume.uri)
    back = tmp_path / "back"
    run("nbdcopy", volume.uri, back)
    run("cmp", image, back)
    totals = run("nbdinfo", "--map", "--totals", volume.uri)
    assert re.search(r"\b3 hole,zero", totals), totals  # the image's holes are none of the volume's data


def test_qemu_img_converts_and_compares(volume: Attached, image: Path) -> None:
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, volume.uri)
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, volume.uri)
    extents = json.loads(run("qemu-img", "map", "--output=json", "-f", "raw", volume.uri))
    assert sum(each["length"] for each in extents) == SIZE
    assert any(each["zero"] for each in extents)


def test_qemu_io_commands(volume: Attached) -> None:
    steps = [
        "write -P 0xcd 1000 9000", "read -P 0xcd 1000 9000", "read -P 0 0 1000", "read -P 0 10000 1000",
        "write -f -P 3 1M 64k", "discard 1M 64k", "read -P 0 1M 64k", "write -P 5 2M 1M", "write -z -u 2M 5000",
        "read -P 0 2M 5000", "read -P 5 2102152 4096", "write -z 2621441 12345", "read -P 0 2621441 12345",
        "read -P 5 2633786 1000", "flush", "aio_write -P 9 3M 2M", "aio_flush", "read -P 9 3M 2M",
    ]  # fmt: skip
    argv: list[object] = ["qemu-io", "-f", "raw", volume.uri]
    for step in steps:
        argv += ["-c", step]
    out = run(*argv)
    assert "verification failed" not in out
    assert len(re.findall(r"^(?:wrote|read|discard) ", out, re.MULTILINE)) == len(steps) - 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_fio_verifies_mixed_sizes(volume: Attached, tmp_path: Path, jobs: int) -> None:
    run(
        "fio", "--name=mixed", "--ioengine=nbd", f"--uri={volume.uri}", "--rw=randrw", "--verify=crc32c",
        "--bssplit=512/10:4k/30:16k/30:100k/20:1m/10", f"--numjobs={jobs}", "--size=32m", "--offset_increment=32m",
        "--iodepth=16", "--fsync=20", "--randseed=1", "--verify_fatal=1", "--output-format=json", "--group_reporting",
        "--output=fio.json", cwd=tmp_path,
    )  # fmt: skip
    (job,) = json.loads((tmp_path / "fio.json").read_text())["jobs"]
    assert job["error"] == 0
    assert job["read"]["io_bytes"] >= jobs * (32 << 20)  # what was read at random, and all that was written, again


def test_fio_verifies_while_a_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    with volume_servers(tmp_path) as servers:
        servers.create(size="32M")
        with servers.attached() as volume:
            argv = [
                "fio", "--name=mixed", "--ioengine=nbd", f"--uri={volume.uri}", "--rw=randrw", "--verify=crc32c",
                "--bssplit=4k/50:16k/50", "--size=16m", "--iodepth=8", "--verify_backlog=32", "--verify_fatal=1",
            ]  # fmt: skip
            with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as fio:
                wait_until(lambda: writes(servers) > 50)
                servers.kill(1)
                before = writes(servers)
                wait_until(lambda: writes(servers) > before + 50)
                servers.start(1)
                out, _ = fio.communicate(timeout=4 * PATIENCE_S)
            assert fio.returncode == 0, out
            wait_until(
                lambda: set(ask(servers.run_dir, "vol-1", "status")["device"]["replicas"].values()) == {"complete"}
            )
            result = run_to_end(command("scrub", "vol-1", "--json", *servers.options))
            reports = json.loads(result.stdout)["replicas"]
            assert [(each["corrupt_blocks"], each["failure"]) for each in reports] == [(0, None)] * 3
            volume.detach()


def writes(servers: Servers) -> int:
    found: int = ask(servers.run_dir, "vol-1", "status")["requests"]["write"]["operations"]
    return found


@contextmanager
def mounted(volume: Attached, directory: Path) -> Iterator[tuple[str, Path]]:
    """The volume as a loop device by nbdfuse, with an ext4 of its own that is mounted."""
    fuse, mount = directory / "fuse", directory / "mount"
    fuse.mkdir()
    mount.mkdir()
    with subprocess.Popen(["nbdfuse", fuse / "disk", volume.uri]) as process:
        try:
            wait_until((fuse / "disk").exists)
            loop = run("losetup", "--find", "--show", fuse / "disk").strip()
            try:
                run("mkfs.ext4", "-q", loop)
                run("mount", loop, mount)
                try:
                    yield loop, mount
                finally:
                    run("umount", mount)
                run("fsck.ext4", "-fn", loop)
            finally:
                run("losetup", "--detach", loop)
        finally:
            # Lazily: who looks at new block devices may have this one open still, and the kernel lets go of it later.
            run("umount", "--lazy", fuse)
            process.wait(PATIENCE_S)


@pytest.mark.root
def test_an_ext4_is_made_filled_checked_and_read_again(volume: Attached, tmp_path: Path) -> None:
    """Needs /dev/fuse and loop devices."""
    if not (Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()):
        pytest.skip("this kernel has no FUSE, or no loop devices")
    source = Path(__file__).resolve().parents[3] / "srd" / "proto"
    archive = tmp_path / "sources.tar"
    run("tar", "-C", source, "-cf", archive, ".")
    with mounted(volume, tmp_path) as (_, mount):
        run("tar", "-C", mount, "-xf", archive)
        run("sync", "-f", mount)
        run("diff", "-r", "-x", "lost+found", source, mount)
