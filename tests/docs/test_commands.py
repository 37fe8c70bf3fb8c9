"""Every command in README and docs/guide: it is read from its page and run here, on a lab, or it is exempt."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from netns.examples import file_named
from netns.lab.lab import Lab
from srd.perf.tcp_socket import CUBIC, why_unavailable
from srd.proto.wire.data import DEFAULT_PORT
from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.cli.perf_ends import TWO_MACHINES
from tests.srd.cli.processes import Process
from tests.srd.loopback import content

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
README, MEASURE, OPERATE = ROOT / "README.md", GUIDE / "measure.md", GUIDE / "operate.md"
TUNNEL_PAGE, CARD_PAGE = ROOT / "docs/tunnel.md", ROOT / "docs/card.md"
PAGES = [README, *sorted(GUIDE.glob("*.md"))]
OPENINGS = [TUNNEL_PAGE, CARD_PAGE]
"""Pages that open with the commands that show what they are about; of these the first block runs here."""
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"(\w+)\$ +(.*)")
PROGRAM = re.compile(r"(make|srd|srd-lab|nitro-\w+|efa-\w+) ")
COMMENT = re.compile(r" +# .*")
KEY = r"srd-x25519 \S+"
LOOPBACK = "127.0.0.1"
EXEMPT = {
    "make": "installs packages and measures for minutes, or runs this; tests/srd/compare, tests/scripts/card_demo",
    "srd sim": "simulates for minutes; tests/srd/sim/experiments",
    "srd sweep": "simulates for minutes; tests/srd/sim/experiments",
    "srd-lab run": "sixteen processes; tests/netns/cli/test_run.py",
}
"""What nothing here runs, by the first words of the command: why, and what runs it."""


class Command(NamedTuple):
    page: Path
    host: str
    """Where the page runs it; empty if there is one host only."""
    text: str


def shown() -> Iterator[Command]:
    """Give the commands of all pages without comments; a block has some with a prompt, or it begins with one."""
    for page in [*PAGES, *OPENINGS]:
        for block in BLOCK.findall(page.read_text())[: 1 if page in OPENINGS else None]:
            lines = [COMMENT.sub("", line) for line in block.splitlines() if line]
            if prompted := [found for line in lines if (found := PROMPT.match(line))]:
                yield from (Command(page, found[1], found[2]) for found in prompted)
            elif PROGRAM.match(lines[0]):
                yield from (Command(page, "", line) for line in lines)


def begins(command: Command, *, words: Sequence[str]) -> bool:
    return any(f"{command.text} ".startswith(f"{each} ") for each in words)


def of(page: Path, *words: str) -> list[Command]:
    """Return the commands of a page that begin with some of these words, and are not exempt."""
    return [command for command in COMMANDS if command.page == page and begins(command, words=words)]


COMMANDS = [command for command in shown() if not begins(command, words=[*EXEMPT])]
LAB = of(README, "srd-lab")
CARD = of(CARD_PAGE, "nitro-card", "efa-pingpong")
TUNNEL = of(TUNNEL_PAGE, "srd keygen", "echo", "srd tunnel", "iperf3")
TRANSFERS = [command for command in COMMANDS if command.host in {"receiver", "sender"} and command.page != MEASURE]
PERF = of(MEASURE, "srd perf")
COMPARE = of(MEASURE, "srd compare")
METRICS = of(OPERATE, "srd", "srd-lab")
SHORT_GRID = """
fabrics: {two: {leaf_spine: {spines: 2, link: {delay: 0.2ms, rate: 50mbit}}}}
transports: [srd]
workloads: {bulk: {bulk: {size: 10K}}}
"""
SHORT_DEMO = SHORT_GRID.replace("bulk: {bulk", "file: {file")


def test_commands__each_is_run_or_exempt() -> None:
    groups = (LAB, CARD, TUNNEL, TRANSFERS, PERF, COMPARE, METRICS)
    assert all(groups)
    assert {*COMMANDS} == {command for group in groups for command in group}
    for words, reason in EXEMPT.items():
        assert any(begins(command, words=[words]) for command in shown()), words
        for named in re.findall(r"tests/[\w/.]+", reason):
            assert (ROOT / named).exists(), reason


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a user who has activated the environment, with keys of their own, in a directory of their own."""
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SRD_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(argv: Sequence[str]) -> str:
    """Run a command to its end, which is a success; return its output."""
    done = run_to_end(argv, within_s=5 * PATIENCE_S)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.root
def test_commands__a_lab(tmp_path: Path) -> None:
    """Those of README in this order; the lab has a name that no other lab has."""
    name, topology = f"tg{os.getpid()}", tmp_path / "reference.yaml"
    topology.write_text(file_named("reference").read_text().replace("name: reference", f"name: {name}"))
    lab_options = ["--lab", name]
    try:
        for command in LAB:
            program, verb, *arguments = shlex.split(command.text)
            if verb == "up":
                arguments = [str(topology)]
            elif verb != "place":
                arguments = [*lab_options, *(each for each in arguments if each not in {"--lab", "reference"})]
            run([program, verb, *arguments])
    finally:
        run_to_end(["srd-lab", "down", *lab_options])


@pytest.mark.root
@pytest.mark.parametrize(("receive", "send"), [*zip(TRANSFERS[::2], TRANSFERS[1::2], strict=True)])
def test_commands__files_to_another_machine(
    receive: Command, send: Command, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver's target has a fingerprint; the page's may have one, which is an example."""
    assert (receive.host, send.host) == ("receiver", "sender")
    payload, sent = content(1 << 20, seed=1), "models/a" if "models" in send.text else "model.safetensors"
    for directory in ("here/models", "there"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "here" / sent).write_bytes(payload)
    monkeypatch.chdir(tmp_path / "there")
    on_one = LOOPBACK in receive.text
    host, address = ("h1", LOOPBACK) if on_one else ("h2", lab.address("h2"))
    with Process(lab.command(host, ["sh", "-c", receive.text.replace("srd recv", "exec srd recv")])) as there:
        target = f"{address}:{DEFAULT_PORT}" + fingerprint(there, port=DEFAULT_PORT) * ("#" in send.text)
        monkeypatch.chdir(tmp_path / "here")
        run(lab.command("h1", ["sh", "-c", f"{send.text.rpartition(' ')[0]} {target}"]))
        if "|" in receive.text:
            assert there.wait() == 0
    (arrived,) = (path for path in (tmp_path / "there").rglob("*") if path.is_file())
    assert arrived.name == Path(sent).name
    assert arrived.read_bytes() == payload


def fingerprint(process: Process, *, port: int) -> str:
    """Return what follows the port in the target that a process prints, `#` included."""
    found = re.search(r"#\S+", process.line(f":{port}#"))
    assert found is not None
    return found[0]


@pytest.mark.root
def test_commands__a_tunnel(lab: Lab) -> None:
    """Each measurement is shorter than a reader's."""
    keygen, allow, listen, connect, *measured = TUNNEL
    key = re.search(KEY, run(lab.command(keygen.host, shlex.split(keygen.text))))
    assert key is not None
    run(lab.command(allow.host, ["sh", "-c", re.sub(KEY, key[0], allow.text)]))
    with Process(lab.command(listen.host, shlex.split(listen.text))) as listener:
        target = re.search(r"\w+:(\d+)#\S+", connect.text)
        assert target is not None
        port = int(target[1])
        there = f"{lab.address(listen.host)}:{port}{fingerprint(listener, port=port)}"
        argv = shlex.split(connect.text.replace(target[0], there))
        with Process(lab.command(connect.host, argv)) as connector:
            connector.line("connected to")
            with Process(lab.command(listen.host, ["iperf3", "-s", "--forceflush"])) as server:
                server.line("listening", of=server.stdout)
                for measure in measured:
                    assert "receiver" in run(lab.command(measure.host, [*shlex.split(measure.text), "-t", "1"]))


@pytest.mark.long
@pytest.mark.root
@pytest.mark.lab(TWO_MACHINES)
def test_commands__measurements(lab: Lab) -> None:
    """Each to one server, and for less time than a reader takes."""
    serve, *measured = PERF
    with Process(lab.command("far", shlex.split(serve.text))) as serving:
        there = lab.address("far")
        serving.line("listening", of=serving.stdout)
        for command in measured:
            text = command.text
            if "--mptcp" in text and why_unavailable(algorithm=CUBIC, mptcp=True):
                continue
            if "bbr" in text and why_unavailable(algorithm="bbr", mptcp=False):
                continue
            less = ["-t", "0.3"] if " client " in text else ["-D", "0.02"] if "-D" in text else ["-n", "2"]
            output = run(lab.command("near", [*text.replace(serve.host, there).split(), *less]))
            assert output.count("\n") > 4


@pytest.mark.root
def test_commands__a_card(lab: Lab, tmp_path: Path) -> None:
    """The reader's program asks for the card's devices; the round trips are fewer than a reader's."""
    start, env, serve, measure = CARD
    run_dir = ["--run-dir", str(tmp_path / "card")]
    program = Path(env.text.rpartition(" ")[2])
    program.write_text("import pyverbs.device; print(*(each.name for each in pyverbs.device.get_device_list()))")
    with Process(lab.command("h1", [*shlex.split(start.text), *run_dir, "--json"])) as card:
        assert card.event("ready")["event"] == "ready"
        name, command, *arguments = shlex.split(env.text)
        assert "efa_1" in run([name, command, *run_dir, *arguments])
        with Process(lab.command("h1", [*shlex.split(serve.text), *run_dir])) as server:
            server.line("waiting", of=server.stdout)
            assert "#bytes" in run(lab.command("h1", [*shlex.split(measure.text), *run_dir, "-n", "10"]))


@pytest.mark.root
def test_commands__metrics(lab: Lab, tmp_path: Path) -> None:
    """Two of them serve until they are stopped."""
    (tmp_path / "inbox").mkdir()
    with ExitStack() as serving:
        for command in METRICS:
            argv = lab.command("h1", shlex.split(command.text.replace("/srv", str(tmp_path))))
            if "--output" not in argv and "--listen" not in argv:
                assert run(argv).count("\n") > 1
                continue
            options = ["--lab", lab.name] if "srd-lab" in argv else []
            serving.enter_context(Process([*argv, *options])).line("/metrics")


@pytest.mark.root
@pytest.mark.long
def test_commands__a_comparison(tmp_path: Path) -> None:
    """In this order, with a shorter grid: fewer and smaller flows, and a file of this name instead of `reference`."""
    (tmp_path / "reference").write_text(SHORT_GRID)
    (tmp_path / "demo").write_text(SHORT_DEMO)
    (tmp_path / "FILE").write_bytes(b"a file")
    grid = tmp_path / "incast.yaml"
    for command in COMPARE:
        run(["sh", "-c", command.text])
        if "--show" in command.text:
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
