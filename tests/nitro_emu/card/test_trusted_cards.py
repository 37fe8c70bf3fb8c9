"""Cards with security chips, all of them processes: boot, attestation, live update, and what seals a card."""

from __future__ import annotations

import base64
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from nitro_emu.card.control import ask
from nitro_emu.efa.verbs import AddressHandle, CompStatus
from nitro_emu.errors import CardError
from nitro_emu.peers.attestation import PEER_USER_DATA
from nitro_emu.trust.verify import Expectation, verify_untrusted
from tests.nitro_emu.cards import Card, Tenant, running_card_of
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.processes import loopback_address
from tests.nitro_emu.trusted_cards import VFS, Site, indented
from tests.nitro_emu.vpc_cards import ControlPlane
from tests.patience import PATIENCE_S, wait_until
from tests.srd.cli.processes import Process

pytestmark = pytest.mark.compiled  # cards as processes

OK = CompStatus.OK


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, ControlPlane(tmp_path))
    for name in VFS:
        made.configure(name)
        made.sign(name)
    return made


def required(root: str, *, pcrs: str = "{}") -> str:
    return f"require_attestation:\n  pcrs: {pcrs}\n  root: |\n{indented(root, 4)}"


def exchange(left: Tenant, right: Tenant, *, number: int, ah: AddressHandle) -> int:
    """Send a message; return the sender's status."""
    data = pattern(number, length=2000)
    left.bytes[:2000] = data
    right.receive(number, right.sge(2000, at=100))
    left.send(ah, right.qp.number, left.sge(2000), wr_id=number)
    status = left.completion().vendor_error
    if status == OK:
        assert right.completion().vendor_error == OK
        assert (right.bytes[100:2100] == data).all()
    return status


@contextmanager
def red_tenants(cards: dict[str, Card]) -> Iterator[tuple[Tenant, Tenant]]:
    left, right = Tenant(cards["card-a"]), Tenant(cards["card-b"])
    try:
        yield left, right
    finally:
        left.close()
        right.close()


def test_attested_cards__exchange_and_prove_what_they_run(site: Site) -> None:
    """All chips' roots are trusted by all cards."""
    for name in VFS:
        site.configure(name, more=required("".join(map(site.root, VFS))))
        site.sign(name)
    with site.running() as cards, red_tenants_after_push(site, cards) as (left, right):
        assert exchange(left, right, number=1, ah=AddressHandle(left.pd, gid=right.gid)) == OK
        assert exchange(right, left, number=2, ah=AddressHandle(right.pd, gid=left.gid)) == OK
        nonce = os.urandom(20)
        document = base64.b64decode(ask(cards["card-a"].run_dir, "attest", nonce=nonce.hex())["document"])
        root = x509.load_pem_x509_certificate(site.root("card-a").encode())
        found = verify_untrusted(document, expected=Expectation(root=root, at=None, nonce=nonce))
        assert (set(found.pcrs), found.public_key) == (set(range(16)), None)
        # Else a tenant could have a document for another card's peer, or with a key of its own, for the card's secrets.
        for lie in ({"user_data": PEER_USER_DATA.hex()}, {"user_data": b"open-srd:".hex()}, {"public_key": "01"}):
            with pytest.raises(CardError, match=r"begins what the card itself states|no argument 'public_key'"):
                ask(cards["card-a"].run_dir, "attest", nonce=nonce.hex(), **lie)

        head = ask(cards["card-a"].run_dir, "audit")
        stated = f"open-srd: card-a audit log {head['records']} {head['head']}".encode()
        verify_untrusted(base64.b64decode(head["document"]), expected=Expectation(root=root, at=None, user_data=stated))


@contextmanager
def red_tenants_after_push(site: Site, cards: dict[str, Card]) -> Iterator[tuple[Tenant, Tenant]]:
    site.control_plane.push()
    with red_tenants(cards) as both:
        yield both


@pytest.mark.parametrize(
    ("wrong", "who"),
    [
        ("pcr", "card-b"),
        pytest.param("root", "card-a", marks=pytest.mark.long),
        pytest.param("root", "card-b", marks=pytest.mark.long),
        pytest.param("pcr", "card-a", marks=pytest.mark.long),
    ],
)
def test_peer__that_does_not_attest_what_is_required_is_not_opened(site: Site, who: str, wrong: str) -> None:
    """Both directions: the one that requires it may open the peer (card-a), or be asked to (card-b)."""
    other = "card-b" if who == "card-a" else "card-a"
    pcrs = "{}" if wrong == "root" else f"{{0: '{'00' * 47}01'}}"
    site.configure(who, more=required(site.root(who if wrong == "root" else other), pcrs=pcrs))
    site.sign(who)
    with site.running() as cards, red_tenants_after_push(site, cards) as (left, right):
        ah = AddressHandle(left.pd, gid=right.gid)
        assert exchange(left, right, number=1, ah=ah) == CompStatus.LOCAL_ERROR_UNREACH_REMOTE
        wait_until(lambda: ask(cards[who].run_dir, "stats")["alarms"].get("attestation") == 1)
        assert not right.cq.poll(1)


def test_chip__killed_leaves_a_running_card_running_and_no_new_one_starts(site: Site) -> None:
    with site.running() as cards, red_tenants_after_push(site, cards) as (left, right):
        ah = AddressHandle(left.pd, gid=right.gid)
        assert exchange(left, right, number=1, ah=ah) == OK
        site.chips["card-a"].kill(signal.SIGKILL)
        site.chips["card-a"].wait()
        assert exchange(left, right, number=2, ah=ah) == OK
        with pytest.raises(CardError, match="chip"):
            ask(cards["card-a"].run_dir, "attest")
        site.control_plane.push()
        assert exchange(right, left, number=3, ah=AddressHandle(right.pd, gid=left.gid)) == OK
        cards["card-a"].kill()
        assert_does_not_start(site, "card-a", reason="no chip answers")


def assert_does_not_start(site: Site, name: str, *, reason: str) -> None:
    with Process([sys.executable, "-m", "nitro_emu.cli", "run", str(site.config(name)), "--json-lines"]) as card:
        assert card.wait() == 1
        lines = card.stderr.all()
        assert reason in lines[-1], lines
        assert "Traceback" not in "".join(lines)


def test_changed_configuration__leaves_the_card_sealed(site: Site) -> None:
    with site.running_chip("card-a"):
        content = bytearray(site.config("card-a").read_bytes())
        site.config("card-a").write_bytes(content.replace(b"172.31.0.5", b"172.31.0.7"))
        assert_does_not_start(site, "card-a", reason="SEALED: ")
        assert site.state("card-a") == "SEALED"
        site.config("card-a").write_bytes(content)
        with running_card_of(site.config("card-a"), run_dir=site.run_dir("card-a")):
            assert site.state("card-a") == "RUN"


def test_code_from_elsewhere__is_not_loaded(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").touch()
    with site.running_chip("card-a"):
        monkeypatch.setenv(
            "PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        )
        assert_does_not_start(site, "card-a", reason=f"sitecustomize is loaded from {tmp_path}/sitecustomize.py")
        assert site.state("card-a") != "RUN"


def test_update__to_a_new_version_replaces_the_process_and_goes_on(site: Site) -> None:
    """Also its TCP listener, which a confined process has to make anew."""
    address = loopback_address()
    metrics = f"metrics: {address}:9100\n"
    site.configure("card-a", more=metrics)
    site.sign("card-a")
    with site.running() as cards:
        card = cards["card-a"]
        with red_tenants_after_push(site, cards) as (left, right):
            assert exchange(left, right, number=1, ah=AddressHandle(left.pd, gid=right.gid)) == OK
        site.configure("card-a", more=f"{metrics}log_level: debug\n")
        new = site.sign("card-a", version=2, output=site.directory / "new.manifest")
        assert ask(card.run_dir, "update", manifest=str(new)) == {"version": 2}
        card.process.event("ready")  # of the new program, in the same process
        assert site.manifest("card-a").read_bytes() == new.read_bytes()
        with red_tenants_after_push(site, cards) as (left, right):
            assert exchange(left, right, number=2, ah=AddressHandle(left.pd, gid=right.gid)) == OK
        with urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=PATIENCE_S) as page:
            assert b"efa_tx_bytes_total" in page.read()
        old = site.sign("card-a", version=1, output=site.directory / "old.manifest")
        with pytest.raises(CardError, match="version"):
            ask(card.run_dir, "update", manifest=str(old))
        ask(card.run_dir, "status")


def test_update__that_does_not_fit_the_files_is_refused_and_changes_nothing(site: Site) -> None:
    with site.running(["card-a"]) as cards:
        run_dir = cards["card-a"].run_dir
        before = site.manifest("card-a").read_bytes()
        new = site.sign("card-a", version=2, output=site.directory / "new.manifest")
        site.configure("card-a", more="log_level: debug\n")
        with pytest.raises(CardError, match=r"card-a\.yaml"):
            ask(run_dir, "update", manifest=str(new))
        flipped = bytearray(new.read_bytes())
        flipped[len(flipped) // 2] ^= 1
        new.write_bytes(flipped)
        with pytest.raises(CardError):
            ask(run_dir, "update", manifest=str(new))
        assert site.manifest("card-a").read_bytes() == before
        ask(run_dir, "status")
