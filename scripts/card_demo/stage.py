"""The demonstration's stage: two cards with security chips, one without, and the control plane that maps them.

Everything is a process of its own, in the namespace of its card's host, and everything that it needs is in one
directory. Each card's software and settings are signed by the vendor, twice: version 1, and version 2, which runs.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from netns.lab.lab import Lab
from nitro_emu.chip.chip import utc_now
from nitro_emu.chip.store import ChipStore
from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.trust.key_files import make_key_files, read_private_key, read_public_key
from nitro_emu.trust.manifest import Manifest, make_manifest, sign_manifest
from nitro_emu.trust.measure import software_root
from nitro_emu.trust.pki import certificate_pem
from scripts.harness.efa_perf import CardDevice
from scripts.harness.errors import BenchError
from scripts.harness.process import Event, Process, ProcessGroup
from srd.secure.keys import create
from srd.secure.noise import public_bytes

BOUND_S: Final = 240.0
"""Longest time that a process may take for what it is waited for."""
_CARD: Final = (sys.executable, "-m", "nitro_emu.cli")
_CHIP: Final = (sys.executable, "-m", "nitro_emu.cli.chip")
_VPC: Final = (sys.executable, "-m", "nitro_emu.cli.vpc")
VERSION: Final = 2
"""Of what runs; there is a signed manifest of the version before, too."""


@dataclass(frozen=True, slots=True)
class DemoInterface:
    """An interface of a VPC: a virtual function of a card."""

    name: str
    vpc: str
    address: str
    group: str
    card: str
    device: str
    port: int

    @property
    def gid(self) -> bytes:
        """What its tenant reaches it by: its private address, which another VPC may have, too."""
        return gid_of(self.address, port=IPV6_PORT)


INTERFACES: Final = {
    each.name: each
    for each in (
        DemoInterface("red-1", "red", "172.31.0.5", "efa", "card-h1", "efa_0", 19875),
        DemoInterface("red-2", "red", "172.31.0.6", "efa", "card-h2", "efa_0", 19875),
        DemoInterface("blue-1", "blue", "172.31.0.5", "efa", "card-h1", "efa_1", 19876),
        DemoInterface("blue-2", "blue", "172.31.0.6", "efa", "card-h2", "efa_1", 19876),
        DemoInterface("red-3", "red", "172.31.0.7", "none", "card-h2", "efa_2", 19877),
        DemoInterface("blue-3", "blue", "172.31.0.8", "efa", "card-h2", "efa_3", 19878),
        DemoInterface("red-4", "red", "172.31.0.9", "efa", "card-x", "efa_0", 19879),
    )
}
VPCS: Final = {"red": 1, "blue": 2}
CARDS: Final = {"card-h1": "h1", "card-h2": "h2", "card-x": "h2"}
"""The host of each card."""
CHIPS: Final = {"card-h1": "card-h2", "card-h2": "card-h1"}
"""The cards with a chip, and the card whose chip each of them trusts."""


class DemoStage:
    """The files and processes of a demonstration; `build` makes it."""

    def __init__(self, lab: Lab, *, directory: Path, processes: ProcessGroup) -> None:
        self.lab = lab
        self.directory = directory
        self.processes = processes
        self.manifests: dict[str, Manifest] = {}
        self.running: dict[str, Process] = {}
        self._public_keys: dict[str, bytes] = {}

    # -- names ----------------------------------------------------------------------------------------------------

    def run_dir(self, card: str) -> Path:
        return self.directory / card

    def device(self, interface: DemoInterface) -> CardDevice:
        return CardDevice(self.run_dir(interface.card), interface.device)

    def chip(self, card: str) -> Path:
        return self.directory / f"chip-{card}"

    def root(self, card: str) -> Path:
        return self.directory / f"{card}.root.pem"

    def settings(self, card: str) -> Path:
        return self.directory / f"{card}.yaml"

    def manifest(self, card: str, *, version: int | None = None) -> Path:
        """Return the file of the manifest that a card is started with, or of a certain version."""
        return self.directory / (f"{card}.manifest" if version is None else f"{card}.manifest.{version}")

    @property
    def map_file(self) -> Path:
        return self.directory / "vpc.yaml"

    # -- files ----------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Make keys, chips, settings and manifests, start everything, and wait until the cards have their mapping."""
        vendor = self.directory / "vendor.pem"
        self.vendor_public = read_public_key(make_key_files(vendor))
        make_key_files(self.directory / "control.pem")
        for card in CARDS:
            self._make_identity(card)
        for card in CARDS:
            self.settings(card).write_text(self._settings(card, image=self._image()), encoding="utf-8")
        for card in CHIPS:
            self._sign(card, vendor=vendor)
        chips = [self.start_chip(card) for card in CHIPS]
        for chip in chips:
            self.wait_for(chip, "ready")
        for card in CARDS:
            self.running[card] = self.start_card(card)
        for process in self.running.values():
            self.wait_for(process, "ready")
        self._start_control_plane()

    def _make_identity(self, card: str) -> None:
        """Make a card's key: in its chip, or in a file."""
        if card in CHIPS:
            store = ChipStore.create(self.chip(card), vendor=self.vendor_public, card=card, now=utc_now())
            contents = store.load()
            self._public_keys[card] = contents.public_key
            self.root(card).write_bytes(certificate_pem(contents.root.certificate))
        else:
            self._public_keys[card] = public_bytes(create(self.directory / f"{card}.key"))
        self.run_dir(card).mkdir()

    def _image(self) -> str:
        """Return what PCR 0 is with the software that runs here."""
        found = make_manifest(
            name="image", version=1, image_root=software_root(), configuration=Path(__file__), issued_at_s=0
        )
        return found.pcrs(vendor=self.vendor_public)[0].hex()

    def _settings(self, card: str, *, image: str) -> str:
        fields: dict[str, Any] = {
            "name": card,
            "run_dir": str(self.run_dir(card)),
            "audit_log": str(self.directory / f"{card}.audit"),
            "control_plane": {"key": (self.directory / "control.pub.pem").read_text(encoding="ascii")},
        }
        if card in CHIPS:
            fields["chip"] = {"directory": str(self.chip(card)), "manifest": str(self.manifest(card))}
            root = self.root(CHIPS[card]).read_text(encoding="ascii")
            fields["require_attestation"] = {"root": root, "pcrs": {0: image}}
        else:
            fields["key_file"] = f"{card}.key"
        fields["vfs"] = [
            {
                "name": each.device,
                "address": self.lab.address(CARDS[card]),
                "port": each.port,
                "vpc": each.vpc,
                "private_address": each.address,
            }
            for each in INTERFACES.values()
            if each.card == card
        ]
        return "# As signed: with one byte changed the card stays sealed.\n" + yaml.safe_dump(fields, sort_keys=False)

    def _sign(self, card: str, *, vendor: Path) -> None:
        """Sign what the card is to run, as the version before and as the one that runs."""
        key = read_private_key(vendor)
        for version in (VERSION - 1, VERSION):
            self.manifests[card] = make_manifest(
                name=card,
                version=version,
                image_root=software_root(),
                configuration=self.settings(card),
                issued_at_s=int(time.time()),
            )
            signed = sign_manifest(self.manifests[card], key=key)
            self.manifest(card, version=version).write_bytes(signed)
            self.manifest(card).write_bytes(signed)

    def _map(self) -> dict[str, Any]:
        return {
            "lifetime_s": 60,
            "cards": {
                card: {
                    "address": self.lab.address(host),
                    "public_key": base64.b64encode(self._public_keys[card]).decode(),
                    "push": str(self.run_dir(card) / "control.sock"),
                }
                for card, host in CARDS.items()
            },
            "vpcs": {
                vpc: {
                    "id": number,
                    "subnets": {"a": "172.31.0.0/24"},
                    "groups": {"efa": {"ingress": _all_of("efa"), "egress": _all_of("efa")}, "none": {}},
                    "interfaces": {
                        each.name: {
                            "address": each.address,
                            "subnet": "a",
                            "groups": [each.group],
                            "card": each.card,
                            "port": each.port,
                        }
                        for each in INTERFACES.values()
                        if each.vpc == vpc
                    },
                }
                for vpc, number in VPCS.items()
            },
        }

    # -- processes ------------------------------------------------------------------------------------------------

    def start_chip(self, card: str) -> Process:
        return self._start(f"chip of {card}", [*_CHIP, "run", str(self.chip(card)), "--json-lines"], host=CARDS[card])

    def start_card(self, card: str, *, before: Sequence[str] = ()) -> Process:
        """Start a card, also with a command before its own (env)."""
        argv = [*before, *_CARD, "run", str(self.settings(card)), "--json-lines"]
        return self._start(card, argv, host=CARDS[card])

    def _start_control_plane(self) -> None:
        self._write_map(self._map())
        argv = [*_VPC, "serve", str(self.map_file), "--key", str(self.directory / "control.pem"), "--json-lines"]
        process = self.processes.start("nitro-vpc", argv)
        for card in CARDS:
            found = self.wait_for(process, "card", card=card)
            if found["state"] != "accepted":
                raise BenchError(f"{card}: the mapping was {found['state']}: {found['reason']}")

    def withdraw_rules(self, vpc: str) -> None:
        """Take the rules of a VPC's groups out of the control plane's file, which it reads again by itself."""
        changed = self._map()
        changed["vpcs"][vpc]["groups"] = {group: {} for group in changed["vpcs"][vpc]["groups"]}
        self._write_map(changed)

    def _write_map(self, content: dict[str, Any]) -> None:
        temporary = self.map_file.with_suffix(".new")
        temporary.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        temporary.replace(self.map_file)

    def _start(self, name: str, argv: Sequence[str], *, host: str) -> Process:
        return self.processes.start(name, self.lab.command(host, list(argv)))

    def wait_for(self, process: Process, kind: str, **fields: str) -> Event:
        """Return the next event of this kind with these fields. Raises BenchError if the process ends before."""
        return self.processes.event(process, kind, bound_s=BOUND_S, **fields)

    def ends_unready(self, process: Process) -> bool:
        """Return whether a process ends before it serves anything; have all of its output, and end it if it serves."""
        try:
            self.wait_for(process, "ready")
        except BenchError:
            if process.status is None:
                raise
            return process.status != 0
        self.processes.stop(process)
        return False


def _all_of(group: str) -> list[dict[str, str]]:
    return [{"protocol": "all", "group": group}]
