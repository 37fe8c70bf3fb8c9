"""Every command block of README and docs/guide: what is run here, on a lab, and what is exempt, with the reason."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from netns.lab.lab import Lab
from netns.topology.file import read_topology
from srd.perf.tcp_socket import CUBIC, why_unavailable
from srd.proto.wire.data import DEFAULT_PORT
from tests.patience import PATIENCE_S
from tests.srd.cli.perf_ends import two_machines
from tests.srd.cli.processes import Process
from tests.srd.loopback import content

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXEMPT = {
    "srd recv --listen 0.0.0.0:19870 --output /srv/inbox --metrics 127.0.0.1:9470": "tests/srd/cli/test_metrics.py",
    "srd metrics 127.0.0.1:9470": "another process's address; tests/srd/cli/test_metrics.py",
    "srd top 127.0.0.1:9470": "another process's address; tests/srd/cli/test_metrics.py",
    "srd-lab metrics --listen 127.0.0.1:9471": "runs until it is stopped; tests/netns/cli/test_metrics.py",
    "make demo": "installs packages and measures for two minutes; tests/netns/compare",
    "make test": "runs this",
    "make demo-card": "measures for a minute; tests/scripts/card_demo",
    "srd-lab run allreduce --topology cluster --check-placement": "sixteen processes; tests/netns/cli/test_run.py",
    "nitro-card env -- python my_pyverbs_program.py": "the reader's program; tests/nitro_emu/pyverbs",
    "efa-bw -d efa_0": "two ends; tests/nitro_emu/perf",
    "nitro-vpc serve vpc --key control.pem": "needs a key; tests/nitro_emu/cli/test_vpc.py",
    "nitro-chip run chip-a": "needs a chip; tests/nitro_emu/chip",
    "nitro-verify DOC --root root.pem --nonce HEX": "a form, no command; tests/nitro_emu/cli",
}
"""Commands that nothing here runs: why, and what runs them."""
LAB = [
    "srd-lab up reference",
    "srd-lab verify",
    "srd-lab exec h1 -- ping -c1 10.0.2.1",
    "srd-lab set leaf1-spine1 loss=1%",
    "srd-lab status --lab reference",
    "srd-lab down",
    "srd-lab place allreduce --topology cluster",
]
CARD = "nitro-card run card-a"
PERF_SERVER = "srd perf server"
COMPARE = [
    "srd compare incast --show > incast.yaml",
    "srd compare incast.yaml",
    "srd compare incast.yaml --picture incast.png",
    "srd compare reference",
    "srd compare demo",
    "srd compare demo --file FILE",
    "srd compare demo --conditions clean --transports srd --anew",
    "srd compare demo --seeds 3",
    "srd compare demo --picture demo.png",
]
SHORT_GRID = """
fabrics: {two: {leaf_spine: {spines: 2, link: {delay: 0.2ms, rate: 50mbit}}}}
transports: [srd]
workloads: {bulk: {bulk: {size: 10K}}}
"""
SHORT_DEMO = SHORT_GRID.replace("bulk: {bulk", "file: {file")
RECEIVER, SENDER = "receiver$ ", "sender$   "


def command_lines(page: Path) -> list[str]:
    """Return the commands of a page's blocks without their comments; a block of output has none."""
    found = []
    for block in BLOCK.findall(page.read_text()):
        lines = block.splitlines()
        if any(line.startswith((RECEIVER, SENDER)) for line in lines):
            lines = [line for line in lines if line.startswith((RECEIVER, SENDER))]
        elif not re.match(r"(make|srd|srd-lab|nitro-\w+|efa-\w+) ", lines[0]):
            continue  # what a command has written
        found += [line.split("  #")[0].split(" # ")[0].rstrip() for line in lines if line]
    return found


def pages_with(program: str) -> list[Path]:
    """Return the pages of which a receiver runs a program."""
    return [page for page in PAGES if any(program in line for line in command_lines(page) if line.startswith(RECEIVER))]


def test_commands__each_is_run_or_exempt() -> None:
    lines = [line for page in PAGES for line in command_lines(page)]
    run = {*LAB, CARD, *COMPARE}
    others = [line for line in lines if not line.startswith((RECEIVER, SENDER))]
    assert {*others} == run | {*EXEMPT}
    for reason in EXEMPT.values():
        for named in re.findall(r"tests/[\w/.]+", reason):
            assert (ROOT / named).exists(), reason


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a user who has activated the environment, with keys of their own."""
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "SRD_HOME": str(tmp_path)}


@pytest.mark.root
def test_commands__a_lab(topology: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Those of README in this order; the lab is named, as there may be others."""
    name = read_topology(topology).name
    lab_options = ["--lab", name]
    try:
        for line in LAB:
            program, command, *arguments = shlex.split(line)
            if command == "up":
                arguments = [str(topology)]
            elif command != "place":
                arguments = [*lab_options, *(each for each in arguments if each not in {"--lab", "reference"})]
            done = subprocess.run(
                [program, command, *arguments],
                env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (line, done)
    finally:
        subprocess.run(["srd-lab", "down", *lab_options], env=environment, capture_output=True, check=False)


def transfers() -> list[tuple[str, str, str]]:
    """Return each command of a receiver and of its sender, with their page."""
    found = []
    for page in pages_with("srd recv"):
        lines = [line.split("$ ")[1].strip() for line in command_lines(page) if "$ " in line]
        found += [(page.stem, *pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
    return found


@pytest.mark.root
@pytest.mark.parametrize(("page", "receive", "send"), transfers())
def test_commands__files_to_another_machine(
    page: str, receive: str, send: str, lab: Lab, environment: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The receiver's target has a fingerprint; the page's may have one, which is an example."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    payload, sent = content(1 << 20, seed=1), "models/a" if "models" in send else "model.safetensors"
    for directory in ("here/models", "there"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "here" / sent).write_bytes(payload)
    monkeypatch.chdir(tmp_path / "there")
    with Process(lab.command("h2", ["sh", "-c", receive.replace("srd recv", "exec srd recv")])) as there:
        while (fingerprint := re.search(rf":{DEFAULT_PORT}(#\S+)", there.stderr.next() or "")) is None:
            pass
        target = f"{lab.address('h2')}:{DEFAULT_PORT}" + (fingerprint[1] if "#" in send else "")
        monkeypatch.chdir(tmp_path / "here")
        done = subprocess.run(
            lab.command("h1", ["sh", "-c", f"{send.rpartition(' ')[0]} {target}"]),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (page, done)
        if "|" in receive:
            assert there.wait() == 0
    (arrived,) = (path for path in (tmp_path / "there").rglob("*") if path.is_file())
    assert arrived.name == Path(sent).name
    assert arrived.read_bytes() == payload


@pytest.mark.root
@pytest.mark.parametrize("page", pages_with(PERF_SERVER), ids=lambda page: page.stem)
def test_commands__measurements(page: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each to one server, and for less time than a reader takes."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with two_machines() as lab, Process(lab.command("far", PERF_SERVER.split())) as serving:
        there = lab.address("far")
        while "listening" not in (line := serving.stdout.next() or ""):
            assert serving.popen.poll() is None, (line, serving.stderr.all())
        measured = [line.removeprefix(SENDER) for line in command_lines(page) if line.startswith(f"{SENDER}srd perf")]
        assert measured
        for line in measured:
            if "--mptcp" in line and why_unavailable(algorithm=CUBIC, mptcp=True):
                continue
            if "bbr" in line and why_unavailable(algorithm="bbr", mptcp=False):
                continue
            less = ["-t", "0.3"] if " client " in line else ["-D", "0.02"] if "-D" in line else ["-n", "2"]
            done = subprocess.run(
                lab.command("near", [*line.replace("receiver", there).split(), *less]),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, (line, done)
            assert done.stdout.count("\n") > 4


@pytest.mark.root
def test_commands__a_card(lab: Lab, environment: dict[str, str], tmp_path: Path) -> None:
    run_dir = tmp_path / "card"
    options = ["--run-dir", str(run_dir), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with Process(lab.command("h1", [*CARD.split(), *options])) as card:
            assert card.event("ready")["event"] == "ready"
            status = ["nitro-card", "status", "--run-dir", str(run_dir)]
            shown = subprocess.run(status, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            assert "efa_1" in shown.stdout


@pytest.mark.root
def test_commands__a_comparison(environment: dict[str, str], tmp_path: Path) -> None:
    """In this order, with a shorter grid: fewer and smaller flows, and a file of this name instead of `reference`."""
    (tmp_path / "reference").write_text(SHORT_GRID)
    (tmp_path / "demo").write_text(SHORT_DEMO)
    (tmp_path / "FILE").write_bytes(b"a file")
    grid = tmp_path / "incast.yaml"
    for line in COMPARE:
        done = subprocess.run(
            ["sh", "-c", line],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done)
        if "--show" in line:
            text = grid.read_text()
            for long, short in (
                ("senders: 4, size: 4M", "senders: 1, size: 50K"),
                ("10s", "1s"),
                ("  clean: {}\n", ""),
            ):
                assert long in text
                text = text.replace(long, short)
            grid.write_text(text)
    report = (tmp_path / "out" / "incast" / "report.html").read_text()
    for transport in ("SRD", "TCP cubic", "TCP BBR", "MPTCP"):
        assert f"</span>{transport}</td>" in report
    assert (tmp_path / "incast.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "reference" / "report.html").exists()
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
