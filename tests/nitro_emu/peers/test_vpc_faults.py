"""Faults of tenancy and trust: rules withdrawn, a dead control plane, mappings that lie, secrets, egress."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import numpy as np
import pytest
import yaml

from nitro_emu.card.card import Card as DeviceCard
from nitro_emu.card.config import load
from nitro_emu.card.control import ask
from nitro_emu.efa.verbs import AddressHandle, CompStatus, SendOp, VerbsError
from nitro_emu.errors import CardError
from nitro_emu.peers.introduction import VfHello
from nitro_emu.trust import landlock
from srd.secure.key_log import VARIABLE as KEY_LOG
from srd.secure.keys import create
from srd.secure.keys import load as load_key
from tests.nitro_emu.cards import GUARD, PLAIN, Card, Tenant, running_card_of
from tests.nitro_emu.hostile_card import HostileCard
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.processes import loopback_address
from tests.nitro_emu.stage import (
    BLUE_PORT,
    CARDS,
    HIGH,
    LOW,
    MALLORY,
    Pair,
    Stage,
    alarms,
    gid,
    push_to,
    stage,
)  # fmt: skip
from tests.nitro_emu.vpc_cards import ControlPlane, Vf, vpc_cards
from tests.patience import PATIENCE_S, wait_until
from tests.programs import run_to_end
from tests.srd.cli.processes import Process

pytestmark = pytest.mark.compiled  # cards as processes

PROBE: Final = Path(__file__).with_name("egress_probe.py")
NOBODY: Final = 65534
OK: Final = CompStatus.OK
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


# -- a rule is withdrawn --------------------------------------------------------------------------------------------

WRITE_BYTES: Final = 48_000
GONE: Final = {
    CompStatus.LOCAL_ERROR_UNREACH_REMOTE, CompStatus.REMOTE_ERROR_ABORT, CompStatus.REMOTE_ERROR_UNKNOWN_PEER,
}  # fmt: skip


class Writes:
    """Writes of one tenant to another's memory, as many in flight as its queue holds."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._numbers = itertools.count(1)
        self.in_flight = 0

    def post(self) -> None:
        left, right = self._pair.left, self._pair.right
        self.in_flight += 1
        left.rdma(
            SendOp.RDMA_WRITE, self._pair.ahs[0], to=right.qp.number, local=left.sge(WRITE_BYTES), rkey=right.mr.rkey,
            address=right.mr.address, wr_id=next(self._numbers),
        )  # fmt: skip

    def fill(self) -> None:
        while self.in_flight < self._pair.left.qp.send_queue.depth:
            self.post()

    def completed(self) -> list[CompStatus]:
        """Wait for one completion or more."""
        done = [self._pair.left.completion(), *self._pair.left.cq.poll(64)]
        self.in_flight -= len(done)
        return [CompStatus(each.vendor_error) for each in done]


@pytest.mark.parametrize("hears_first", ["card-a", "card-b"])
def test_rule__withdrawn_in_the_middle_of_many_writes_ends_them(tmp_path: Path, hears_first: str) -> None:
    """At both ends, whichever hears of it first; nothing is written after that, and other tenants notice nothing.

    On a machine with two processors the last completion came 9 to 19 ms after the first push began, of six runs.
    """
    with stage(tmp_path) as on:
        red, blue = on.pair("red", first=1 << 8), on.pair("blue", first=1 << 16)
        red.exchange()
        blue.exchange()
        data = pattern(1, length=WRITE_BYTES)
        red.left.bytes[:WRITE_BYTES] = data
        red.right.bytes[:] = GUARD
        writes = Writes(red)
        for _ in range(20):
            writes.fill()
            assert set(writes.completed()) == {OK}
        writes.fill()
        on.control_plane.vpcs["red"]["groups"]["efa"]["egress"] = []
        document = on.control_plane.document()
        push_to(on.cards[hears_first], document)
        statuses: list[CompStatus] = []

        def has_ended() -> bool:
            writes.fill()
            statuses.extend(writes.completed())
            return bool(set(statuses) - {OK})

        wait_until(has_ended)  # the end at one card, which is enough
        push_to(on.cards["card-a" if hears_first == "card-b" else "card-b"], document)
        while writes.in_flight:
            statuses += writes.completed()
        assert set(statuses) - {OK} <= GONE
        assert OK not in statuses[min(statuses.index(each) for each in GONE & set(statuses)) :], "one after the end"
        assert (red.right.bytes[:WRITE_BYTES] == data).all()
        red.left.bytes[:] = 0  # must not be sent any more
        for _ in range(20):
            blue.exchange()
        assert (red.right.bytes[:WRITE_BYTES] == data).all(), "it was written to after the end"
        assert (red.right.bytes[WRITE_BYTES:] == GUARD).all()
        writes.post()
        assert writes.completed() == [CompStatus.LOCAL_ERROR_UNREACH_REMOTE]
        assert on.cards[hears_first].stats("efa_0")["vpc"]["revoked"] >= 1
        assert {card.stats("efa_1")["vpc"]["revoked"] for card in on.cards.values()} == {0}


# -- the control plane dies, lies, or is not the control plane ------------------------------------------------------


def mapping_of(card: Card) -> dict[str, Any]:
    found: dict[str, Any] = ask(card.run_dir, "status")["trust"]["mapping"]
    return found


def push_briefly(card: Card, control_plane: ControlPlane) -> None:
    """Give a card a mapping, and wait until its lifetime is over."""
    before, control_plane.lifetime_s = control_plane.lifetime_s, 0.2

    def is_pushed() -> bool:
        with suppress(CardError):  # on a slow machine it has expired when it arrives
            push_to(card, control_plane.document())
            return True
        return False

    wait_until(is_pushed)
    wait_until(lambda: mapping_of(card)["expires_in_s"] == 0)
    control_plane.lifetime_s = before


def test_control_plane__that_is_killed_leaves_the_mapping_for_its_lifetime(tmp_path: Path) -> None:
    """After that open peers go on, and nothing new is allowed, until there is a control plane again."""
    with vpc_cards(tmp_path, CARDS, pushes=False) as (control_plane, cards), ExitStack() as opened:
        file = tmp_path / "vpc.yaml"
        file.write_text(yaml.safe_dump(control_plane.map().model_dump(mode="json", exclude_none=True)))
        argv = [sys.executable, "-m", "nitro_emu.cli.vpc", "serve", str(file), "--key", str(control_plane.key_file)]
        with Process(argv) as serving:
            wait_until(lambda: all(mapping_of(card)["version"] for card in cards.values()))
            serving.kill(signal.SIGKILL)
            serving.wait()
        red, blue = (pair_on(cards, vf, first=first, opened=opened) for vf, first in (("efa_0", 1), ("efa_1", 1 << 16)))
        red.exchange()  # the mapping stays
        control_plane.version = max(mapping_of(card)["version"] for card in cards.values())
        for card in cards.values():
            push_briefly(card, control_plane)
        red.exchange()  # open before
        with pytest.raises(VerbsError):
            AddressHandle(red.left.pd, gid=gid(HIGH))
        blue.left.send(blue.ahs[0], blue.right.qp.number, blue.left.sge(8))
        assert blue.left.completion().vendor_error == CompStatus.LOCAL_ERROR_UNREACH_REMOTE
        control_plane.push()
        red.exchange()
        blue.exchange()


def pair_on(cards: dict[str, Card], vf: str, *, first: int, opened: ExitStack) -> Pair:
    pair = Pair(Tenant(cards["card-a"], vf), Tenant(cards["card-b"], vf), first=first)
    opened.callback(pair.left.close)
    opened.callback(pair.right.close)
    return pair


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.fixture
def cards(shared: Stage) -> Iterator[Stage]:
    """Cards of which only what is asked for changes; without tenants of tests before."""
    yield shared
    shared.close_tenants()


def test_mapping__with_any_byte_changed_is_refused_and_the_old_one_goes_on(cards: Stage) -> None:
    """Sampled: all of its head and of its signature, and each 31st byte between."""
    red, control_plane = cards.pair("red", first=1 << 24), cards.control_plane
    red.exchange()
    control_plane.vpcs["red"]["groups"]["efa"]["egress"] = []  # what the refused document says
    document = control_plane.document()
    control_plane.vpcs["red"]["groups"]["efa"]["egress"] = [{"protocol": "all", "group": "efa"}]
    before = mapping_of(cards.target)["version"]
    size = len(document)
    for at in (*range(16), *range(16, size - 100, 31), *range(size - 100, size)):
        changed = bytearray(document)
        changed[at] ^= 1 << at % 8
        with pytest.raises(CardError):
            push_to(cards.target, bytes(changed))
    for cut in (document[:-1], document[: size // 2], document + b"\0", b"\0"):
        with pytest.raises(CardError):
            push_to(cards.target, cut)
    assert mapping_of(cards.target)["version"] == before
    red.exchange()


ASKING: Final = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    sock.connect("control.sock")
    if request := sys.stdin.buffer.read():
        sock.sendall(request + b"\\n")
    print(sock.makefile().readline())
except OSError as error:
    print(json.dumps({"error": error.strerror}))
"""


def asked_as(uid: int, run_dir: Path, request: dict[str, Any] | None = None) -> str:
    """Have a user of this machine ask a card, or only connect; return why it is refused."""
    done = run_to_end(
        [sys.executable, "-c", ASKING],
        cwd=run_dir,
        user=uid,
        group=uid,
        extra_groups=[],
        input=json.dumps(request) if request else "",
        check=True,
    )
    return str(json.loads(done.stdout)["error"])


@needs_root
def test_mapping__of_an_unprivileged_user_is_refused(tmp_path: Path) -> None:
    """Though its signature is right: of a tenant, and of anybody else."""
    one = {"card-a": (Vf("efa_0", "red", LOW, more=f"uid: {NOBODY}"),)}
    with vpc_cards(tmp_path, one) as (control_plane, cards):
        card = cards["card-a"]
        before = mapping_of(card)["version"]
        request = {"command": "map", "document": base64.b64encode(control_plane.document()).decode()}
        assert "may not ask for map" in asked_as(NOBODY, card.run_dir, request)
        assert "may not control this card" in asked_as(NOBODY - 1, card.run_dir)
        for command in ("status", "stats", "logs", "audit", "update"):
            assert f"may not ask for {command}" in asked_as(NOBODY, card.run_dir, {"command": command})
        assert mapping_of(card)["version"] == before
        assert alarms(card)["control"] == 7


# -- secrets ----------------------------------------------------------------------------------------------------------


def forms(secret: bytes) -> list[bytes]:
    """How a secret may be written: as it is, in hexadecimal, in base64 at any offset, as JSON's escapes."""
    encoded = [base64.b64encode(b"\0" * shift + secret)[4 : -4 - len(secret) % 3] for shift in range(3)]
    return [secret, secret.hex().encode(), secret.hex().upper().encode(), *encoded, repr(secret).encode()[2:-1]]


CALLS: Final = ("status", "stats", "logs", "audit", "attest", "map", "update")
NO_CALLS: Final = ("memory", "keys", "dump", "read", "peek", "__class__", "config")
REQUESTS: Final[Sequence[bytes]] = (
    *(json.dumps({"command": name}).encode() for name in CALLS),
    b'{"command": "attest", "nonce": "00ff", "user_data": "11", "public_key": "22"}',
    b'{"command": "attest", "nonce": "zz"}',
    b'{"command": "attest", "memory": "efa_0"}',
    b'{"command": "logs", "after": -1}',
    b'{"command": "logs", "after": "x"}',
    b'{"command": "logs", "wait_s": 0}',
    b'{"command": "map", "document": "AAAA"}',
    b'{"command": "map", "document": 7}',
    b'{"command": "update", "manifest": "/etc/passwd"}',
    b'{"command": "update", "manifest": "card.key"}',
    *(json.dumps({"command": name}).encode() for name in NO_CALLS),
    b'{"command": ["status"]}',
    b'{"command": null}',
    b"[]",
    b"null",
    b"",
    b"{",
    b'{"command": "status"' + b" " * 70_000 + b"}",
    b"\xff\xfe\0",
    b"[" * 5000,
)  # fmt: skip


def replies_of(card: Card) -> bytes:
    """All that the control socket answers."""
    found = b""
    for request in REQUESTS:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(card.run_dir / "control.sock"))
            sock.sendall(request + b"\n")
            reply = sock.makefile("rb").readline()
            assert reply.startswith((b'{"ok"', b'{"error"')), request
            found += reply
    return found


def test_secrets__are_in_nothing_that_a_card_says(tmp_path: Path) -> None:
    """Its private key, the keys of a peer, and what is in tenants' memory: control socket, log, audit log, metrics."""
    metrics = f"{loopback_address()}:9464"
    with stage(tmp_path, more={"card-b": f"metrics: {metrics}\nlog_level: debug\n"}) as on:
        red = on.pair("red", first=1 << 8)
        red.exchange()
        planted = bytes(np.random.default_rng(9).bytes(32))
        for tenant in (red.left, red.right):
            tenant.bytes[:32] = np.frombuffer(planted, np.uint8)
        peer = on.evil.do(on.evil.open(on.host, BLUE_PORT))
        assert on.evil.do(on.evil.say(peer, VfHello(2, gid(MALLORY), gid(LOW)).pack())).is_welcome
        red.left.send(red.ahs[0], 0xFFF, red.left.sge(32))  # an error with the planted payload
        red.left.completion()
        private = load_key(tmp_path / "card-b" / "card.key").private_bytes_raw()
        said = {
            "control socket": replies_of(on.target),
            "metrics": urlopen(f"http://{metrics}/metrics", timeout=PATIENCE_S).read(),
            "audit log": (tmp_path / "card-b" / "audit.log").read_bytes(),
            "environment": Path(f"/proc/{on.target.pid}/environ").read_bytes(),
            "command line": Path(f"/proc/{on.target.pid}/cmdline").read_bytes(),
            "settings": on.target.config.read_bytes(),
        }
        secrets = {"private key": private, "planted": planted, **session_secrets(on.evil)}
        assert len(secrets) == 4
        on.close_tenants()
    said["log"] = "\n".join(on.target.process.stderr.all()).encode()
    for place, text in said.items():
        assert text, place
        for name, secret in secrets.items():
            assert not any(form in text for form in forms(secret)), f"{name} in {place}"


def session_secrets(evil: HostileCard) -> dict[str, bytes]:
    """The secrets of both directions of its peers, which are those of the cards at the other ends, too."""
    lines = evil.key_log.read_text().splitlines()
    return {f"key of a peer, {number}": bytes.fromhex(line.split()[-1]) for number, line in enumerate(lines)}


def test_forms__find_a_secret() -> None:
    secret = bytes(range(100, 132))
    for text in (b"x" + secret, json.dumps({"k": secret.hex()}).encode(), base64.b64encode(b"pq" + secret + b"r")):
        assert any(form in text for form in forms(secret))


def test_key_log__is_refused_by_a_card_with_a_control_plane(tmp_path: Path) -> None:
    """Whoever starts it would read all traffic of its tenants."""
    log = tmp_path / "secrets"
    with vpc_cards(tmp_path, {"card-a": CARDS["card-a"]}) as (_, cards):
        config = cards["card-a"].config
    with Process(["env", f"{KEY_LOG}={log}", sys.executable, "-m", "nitro_emu.cli", "run", str(config)]) as process:
        assert process.wait() == 1
        assert f"{KEY_LOG} is set" in process.stderr.all()[-1]
    assert not log.exists()


# -- other processes of the machine -----------------------------------------------------------------------------------

AS_NOBODY: Final = (
    sys.executable, "-c", (
    "import os, resource, sys; os.chdir(os.path.dirname(sys.argv[-2]))\n"  # where a core would be dumped
    "resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)\n"
    f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"),
)  # fmt: skip


@contextmanager
def card_of_nobody() -> Iterator[Card]:
    """A card that an unprivileged user runs: each program of that user is as powerful as it."""
    directory = Path(tempfile.mkdtemp(prefix="nitro-test-"))
    try:
        shutil.chown(directory, NOBODY, NOBODY)
        config = directory / "card.yaml"
        config.write_text(
            f"run_dir: {directory / 'run'}\naudit_log: {directory / 'audit.log'}\nconfine: true\n"
            f"vfs:\n  - {{name: efa_0, address: {loopback_address()}, {PLAIN}}}\n"
        )
        with running_card_of(config, run_dir=directory / "run", prefix=AS_NOBODY) as running:
            yield running
    finally:
        shutil.rmtree(directory)


@needs_root
def test_process__of_a_card_is_confined() -> None:
    """What its own user can then do with it, and cannot: trust/test_confinement.py."""
    with card_of_nobody() as card:
        process = Path(f"/proc/{card.pid}")
        assert "\nSeccomp:\t2\n" in (process / "status").read_text()
        assert (process / "environ").stat().st_uid == 0, "the kernel shows a process that is not dumpable to root only"
        limits = (process / "limits").read_text()
        assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]


# -- connections that the control plane did not ask for ---------------------------------------------------------------


@pytest.mark.skipif(landlock.abi() < landlock.NETWORK_ABI, reason="this kernel has no Landlock for the network")
def test_egress__of_a_cards_process_is_refused_by_the_kernel(tmp_path: Path) -> None:
    """Code in a card, a library's or an intruder's: TCP, raw packets, a program."""
    card = tmp_path / "card.yaml"
    control_plane = ControlPlane(tmp_path)
    create(tmp_path / "card.key")
    card.write_text(
        f"run_dir: {tmp_path}\nkey_file: card.key\naudit_log: {tmp_path / 'audit.log'}\n"
        f"control_plane: {{key: {control_plane.public_key_file}}}\n"
        f"vfs:\n  - {{name: efa_0, address: 127.0.0.1, vpc: red, private_address: {LOW}}}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        done = run_to_end([sys.executable, str(PROBE), str(card), str(tcp.getsockname()[1])], check=True)
        tcp.settimeout(0)
        with pytest.raises(BlockingIOError):
            tcp.accept()
    found = json.loads(done.stdout)
    assert len(found) >= 8
    assert all("ermi" in outcome for outcome in found.values()), found


def test_vf__whose_guard_allows_no_host_opens_no_peer(tmp_path: Path) -> None:
    """The engine's packets do not pass Python's calls, so it asks the guard before it opens a peer."""
    with vpc_cards(tmp_path, CARDS, pushes=False) as (control_plane, cards):
        config = cards["card-a"].config
        cards["card-a"].process.kill(signal.SIGTERM)
        assert cards["card-a"].process.wait() == 0
        with in_this_process(config) as (do, card):
            do(lambda: card.set_map(control_plane.document()))
            do(lambda: card.trust.guard.set_allowed(frozenset()))
            left = Tenant(cards["card-a"])
            ah = AddressHandle(left.pd, gid=gid(HIGH))
            left.send(ah, 1, left.sge(8))
            assert left.completion().vendor_error == CompStatus.LOCAL_ERROR_UNREACH_REMOTE
            assert do(lambda: dict(card.alarms.counts)) == {"egress": 1}
            assert do(lambda: card.stats()["vfs"]["efa_0"]["vpc"]["tx_denied"]) == 1
            assert do(lambda: card.stats()["vfs"]["efa_0"]["port"]["tx_pkts"]) == 0
            left.close()


@contextmanager
def in_this_process(config: Path) -> Iterator[tuple[Callable[[Callable[[], Any]], Any], DeviceCard]]:
    """Run a card in a thread; gives a function that has the card's thread call another one, and the card."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    card = DeviceCard(load(config))

    def do(call: Callable[[], Any]) -> Any:
        async def calling() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(calling(), loop).result(PATIENCE_S)

    try:
        card.config.run_dir.mkdir(exist_ok=True)
        asyncio.run_coroutine_threadsafe(card.start(), loop).result(PATIENCE_S)
        yield do, card
    finally:
        do(card.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
