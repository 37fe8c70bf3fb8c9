"""What the demonstration tries, and whether it came out as it should: denials, attestation, tampering."""

from __future__ import annotations

import base64
import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography import x509

from nitro_emu.card.control import ask
from nitro_emu.efa import verbs
from nitro_emu.efa.perf.end import Address, QueuePairEnd, QueuePairRoom
from nitro_emu.errors import TrustError, VerbsError
from nitro_emu.trust.measure import MEASURED_PACKAGES, software_root
from nitro_emu.trust.verify import Expectation, verify_untrusted
from scripts.card_demo.stage import INTERFACES, DemoInterface, DemoStage
from scripts.harness.errors import BenchError
from srd.perf.errors import PerfError

NONCE_BYTES: Final = 32
MESSAGE_BYTES: Final = 64
ROOM: Final = QueuePairRoom(sends=2, receives=1, message_bytes=MESSAGE_BYTES, slots=1)
QUIET_S: Final = 240.0
"""Longest time without a completion."""
_STATUS: Final = re.compile(r".*ended with status \d+, (\w+).*")
_OWNER: Final = re.compile(r"\b[a-z]+/(?=[a-z]+-[0-9])")
"""The VPC in the name of an interface; here the names say it."""
_GID: Final = re.compile(r"fe80:[0-9a-f:]{34}")
_LONG_HEX: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24,}")
_TAMPERED_FILE: Final = "nitro_emu/__init__.py"


@dataclass(frozen=True, slots=True)
class DemoCheck:
    what: str
    outcome: str
    as_expected: bool = field(kw_only=True)


# -- denials ------------------------------------------------------------------------------------------------------


def denials(stage: DemoStage) -> list[DemoCheck]:
    """Ask for addresses that a tenant may not reach, and be a card that cannot attest."""
    return [
        _denied_handle(stage, "red-1", "red-3", why="group none has no rule", reason="group"),
        _denied_handle(stage, "red-1", "blue-3", why="another VPC", reason="no interface"),
        _without_attestation(stage),
        _withdrawn_rule(stage, "red-1", "red-2"),
    ]


@contextmanager
def _end(stage: DemoStage, name: str) -> Iterator[QueuePairEnd]:
    """Be a program of a tenant, at its interface."""
    there = stage.device(INTERFACES[name])
    with ExitStack() as stack:
        yield QueuePairEnd(stack, ROOM, device=there.name, run_dir=there.run_dir, events=False)


def _address(interface: DemoInterface) -> Address:
    """Return what may be anybody's queue pair at an interface."""
    return Address(interface.gid, qpn=1, qkey=1, mtu_bytes=MESSAGE_BYTES, rkey=0)


def _send(end: QueuePairEnd, *, count: int) -> None:
    end.post(verbs.SendOp.SEND, np.zeros(count, np.uint64), length=MESSAGE_BYTES, memory=end.memory)


def _await_open(end: QueuePairEnd, count: int) -> str:
    """Wait until no more than so many requests are open; return the name of the status of one that fails."""
    give_up_at = time.monotonic() + QUIET_S
    try:
        while end.open > count:
            if time.monotonic() >= give_up_at:
                raise BenchError(f"nothing completed for {QUIET_S:g} s")
            end.polled()
            os.sched_yield()
    except PerfError as error:
        return _STATUS.sub(r"\1", str(error))
    return verbs.CompStatus.OK.name


def _denied_handle(stage: DemoStage, source: str, destination: str, *, why: str, reason: str) -> DemoCheck:
    there = INTERFACES[destination]
    what = f"{source} to {destination} ({there.address}): {why}"
    card = INTERFACES[source].card
    before = _last_record(stage, card)
    with _end(stage, source) as end:
        try:
            end.connect(_address(there))
        except VerbsError as error:
            said = _denied_records(stage, card, after=before).removeprefix(f"{source} to {destination}: ")
            return DemoCheck(what, f"{errno.errorcode[error.errno]}: {said}", as_expected=reason in said)
    return DemoCheck(what, "an address handle was made", as_expected=False)


def _last_record(stage: DemoStage, card: str) -> int:
    records = ask(stage.run_dir(card), "logs")["records"]
    return int(records[-1]["number"]) if records else 0


def _denied_records(stage: DemoStage, card: str, *, after: int) -> str:
    records: list[dict[str, Any]] = ask(stage.run_dir(card), "logs", after=after)["records"]
    found = [str(record["message"]) for record in records if "denied" in str(record["message"])]
    return _GID.sub("the address", _OWNER.sub("", found[-1].removeprefix("denied: "))) if found else "no reason"


def _without_attestation(stage: DemoStage) -> DemoCheck:
    """Send from the card without a chip to one that requires a document."""
    there = INTERFACES["red-1"]
    before = _alarms(stage, there.card)
    with _end(stage, "red-4") as end:
        end.connect(_address(there))
        _send(end, count=1)
        status = _await_open(end, 0)
    alarms = _alarms(stage, there.card) - before
    outcome = f"{status}; {there.card}: {alarms} alarm{'s'[: alarms != 1]}"
    is_refused = status == verbs.CompStatus.LOCAL_ERROR_UNREACH_REMOTE.name and alarms > 0
    return DemoCheck("red-4 to red-1: its card has no chip to attest", outcome, as_expected=is_refused)


def _withdrawn_rule(stage: DemoStage, source: str, destination: str) -> DemoCheck:
    """Withdraw the rule that a message is sent by, which waits for the other end to post a second buffer."""
    with _end(stage, source) as sender, _end(stage, destination) as receiver:
        receiver.connect(sender.address)
        sender.connect(receiver.address)
        _send(sender, count=2)
        before = _await_open(sender, 1)
        stage.withdraw_rules(INTERFACES[source].vpc)
        started = time.monotonic()
        status = _await_open(sender, 0)
        seconds = time.monotonic() - started
    # The control plane tells both cards. The first of them to hear of it ends the peer.
    either = verbs.CompStatus.LOCAL_ERROR_UNREACH_REMOTE.name, verbs.CompStatus.REMOTE_ERROR_ABORT.name
    is_ended = before == verbs.CompStatus.OK.name and status in either
    what = f"{source} to {destination}, under way: its rule is withdrawn"
    return DemoCheck(what, f"{status} after {seconds:.2f} s", as_expected=is_ended)


def _alarms(stage: DemoStage, card: str) -> int:
    return int(ask(stage.run_dir(card), "stats")["alarms"].get("attestation", 0))


# -- attestation --------------------------------------------------------------------------------------------------


def attestation(stage: DemoStage, card: str, *, other: str) -> list[DemoCheck]:
    """Ask a card for a document, and verify it; then ask of it what it does not prove."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    answer = ask(stage.run_dir(card), "attest", nonce=nonce.hex())
    document = base64.b64decode(answer.get("document", ""))
    pcrs = stage.manifests[card].pcrs(vendor=stage.vendor_public)
    expected = Expectation(root=_root(stage, card), nonce=nonce, pcrs=pcrs)
    flipped = bytearray(document)
    flipped[document.find(pcrs[0])] ^= 1
    numbers = ", ".join(map(str, sorted(pcrs)))
    return [
        _verified(f"{card}'s document: root, nonce, PCR {numbers}", document, expected, is_wrong=False),
        _verified("  for another nonce", document, replace(expected, nonce=secrets.token_bytes(NONCE_BYTES))),
        _verified(f"  with the root of {other}", document, replace(expected, root=_root(stage, other))),
        _verified("  with one bit of PCR 0 changed", bytes(flipped), expected),
    ]


def _root(stage: DemoStage, card: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(stage.root(card).read_bytes())


def _verified(what: str, document: bytes, expected: Expectation, *, is_wrong: bool = True) -> DemoCheck:
    try:
        found = verify_untrusted(document, expected=expected)
    except TrustError as error:
        return DemoCheck(what, _LONG_HEX.sub(r"\1..", f"refused: {error}"), as_expected=is_wrong)
    return DemoCheck(what, f"verified: {found.module_id}", as_expected=not is_wrong)


# -- tampering ----------------------------------------------------------------------------------------------------


def tampering(stage: DemoStage, card: str) -> list[DemoCheck]:
    """End a card, and start it again with changed settings, changed software, an old version, and as it was signed."""
    stage.processes.stop(stage.running.pop(card))
    old = stage.manifest(card, version=1)
    return [
        _sealed(stage, card, "a byte of its settings changed", _change_settings, reason="is not the signed one"),
        _sealed(
            stage, card, "a byte of its software changed", _change_software, reason=f"{_TAMPERED_FILE} was changed"
        ),
        _sealed(stage, card, "the signed manifest of version 1", _use(old), reason="a rollback is refused"),
        _runs_again(stage, card),
    ]


Change = Callable[[DemoStage, str, ExitStack], Sequence[str]]
"""Changes something until the stack unwinds; returns a command to start the card with."""


def _sealed(stage: DemoStage, card: str, what: str, change: Change, *, reason: str) -> DemoCheck:
    with ExitStack() as stack:
        process = stage.start_card(card, before=change(stage, card, stack))
        is_refused = stage.ends_unready(process)
    said = process.last_error.removeprefix("nitro-card: ")
    shown = said.replace(f"{stage.directory}/", "") if is_refused else "runs"
    is_sealed = is_refused and said.startswith("SEALED: ") and reason in said
    return DemoCheck(f"{card} with {what}", shown, as_expected=is_sealed)


def _runs_again(stage: DemoStage, card: str) -> DemoCheck:
    process = stage.running[card] = stage.start_card(card)
    try:
        stage.wait_for(process, "ready")
    except BenchError as error:
        return DemoCheck(f"{card} as it was signed", str(error), as_expected=False)
    return DemoCheck(f"{card} as it was signed", "runs", as_expected=True)


def _restored(path: Path, stack: ExitStack) -> bytes:
    content = path.read_bytes()
    stack.callback(path.write_bytes, content)
    return content


def _change_settings(stage: DemoStage, card: str, stack: ExitStack) -> Sequence[str]:
    content = _restored(stage.settings(card), stack)
    stage.settings(card).write_bytes(content.replace(b"As signed", b"as signed", 1))
    return ()


def _change_software(stage: DemoStage, card: str, stack: ExitStack) -> Sequence[str]:
    """Run a copy of the software with one byte changed."""
    del card
    image = stage.directory / "changed-image"
    stack.callback(shutil.rmtree, image, ignore_errors=True)
    for package in MEASURED_PACKAGES:
        shutil.copytree(software_root() / package, image / package)
    for group in software_root().glob("*__mypyc.*.so"):
        shutil.copy2(group, image)
    changed = image / _TAMPERED_FILE
    content = changed.read_bytes()
    changed.write_bytes(content.replace(b".", b"!", 1))
    return ("env", "PYTHONSAFEPATH=1", f"PYTHONPATH={image}")


def _use(manifest: Path) -> Change:
    def change(stage: DemoStage, card: str, stack: ExitStack) -> Sequence[str]:
        _restored(stage.manifest(card), stack)
        shutil.copyfile(manifest, stage.manifest(card))
        return ()

    return change
