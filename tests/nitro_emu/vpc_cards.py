"""Cards in VPCs, as processes, and a control plane whose mapping a test writes and pushes."""

from __future__ import annotations

import base64
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nitro_emu.card.control import ask
from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.trust.key_files import make_key_files, read_private_key
from nitro_emu.vpc.document import sign_map
from nitro_emu.vpc.model import VpcMap
from srd.secure.keys import create
from srd.secure.noise import public_bytes
from tests.nitro_emu.cards import Card, running_card_of
from tests.nitro_emu.processes import loopback_address

EFA_GROUP = {"ingress": [{"protocol": "all", "group": "efa"}], "egress": [{"protocol": "all", "group": "efa"}]}
NO_GROUP: dict[str, list[dict[str, str]]] = {"ingress": [], "egress": []}
VPC_IDS = {"red": 1, "blue": 2, "green": 3}


@dataclass(frozen=True)
class Vf:
    """A virtual function of a card: its VPC, its address there, and its groups."""

    name: str
    vpc: str
    private_address: str
    groups: tuple[str, ...] = ("efa",)
    more: str = ""

    @property
    def gid(self) -> bytes:
        return gid_of(self.private_address, port=IPV6_PORT)


@dataclass
class ControlPlane:
    """Writes mappings, signs them, and pushes them to the cards' control sockets."""

    directory: Path
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    vpcs: dict[str, dict[str, Any]] = field(default_factory=dict)
    peerings: list[tuple[str, str]] = field(default_factory=list)
    run_dirs: dict[str, Path] = field(default_factory=dict)
    lifetime_s: float = 600.0
    version: int = 0

    def __post_init__(self) -> None:
        self.key_file = self.directory / "control-plane.pem"
        self.public_key_file = make_key_files(self.key_file)

    def add(self, name: str, *, address: str, public_key: bytes, run_dir: Path, vfs: Sequence[Vf]) -> None:
        push = str(run_dir / "control.sock")
        self.cards[name] = {"address": address, "public_key": base64.b64encode(public_key).decode(), "push": push}
        self.run_dirs[name] = run_dir
        for number, vf in enumerate(vfs):
            vpc = self.vpcs.setdefault(
                vf.vpc,
                {
                    "id": VPC_IDS[vf.vpc],
                    "subnets": {"a": "172.31.0.0/16" if vf.private_address.startswith("172") else "10.9.0.0/16"},
                    "groups": {"efa": copy.deepcopy(EFA_GROUP), "none": NO_GROUP},
                    "interfaces": {},
                },
            )
            vpc["interfaces"][f"{name}-{vf.name.replace('_', '-')}"] = {
                "address": vf.private_address,
                "subnet": "a",
                "groups": list(vf.groups),
                "card": name,
                "port": IPV6_PORT + number,
            }

    def map(self) -> VpcMap:
        return VpcMap.model_validate(
            {
                "lifetime_s": self.lifetime_s,
                "cards": self.cards,
                "vpcs": self.vpcs,
                "peerings": [list(pair) for pair in self.peerings],
            }
        )

    def document(self, *, version: int | None = None, issued_at_s: float | None = None) -> bytes:
        self.version = self.version + 1 if version is None else version
        issued_at_s = time.time() if issued_at_s is None else issued_at_s
        return sign_map(self.map(), version=self.version, issued_at_s=issued_at_s, key=read_private_key(self.key_file))

    def push(self) -> None:
        """Give all cards a new version."""
        document = base64.b64encode(self.document()).decode()
        for run_dir in self.run_dirs.values():
            ask(run_dir, "map", document=document)


@contextmanager
def vpc_cards(
    directory: Path, wanted: Mapping[str, Sequence[Vf]], *, more: str | Mapping[str, str] = "", pushes: bool = True
) -> Iterator[tuple[ControlPlane, dict[str, Card]]]:
    """Run cards with these virtual functions, and give them a mapping in which each has the group `efa`.

    `more`: further settings, of all cards or by the card's name.
    """
    control_plane = ControlPlane(directory)
    with ExitStack() as stack:
        running = {}
        for name, vfs in wanted.items():
            place = directory / name
            place.mkdir()
            address = loopback_address()
            key = public_bytes(create(place / "card.key"))
            config = place / f"{name}.yaml"
            listed = "".join(
                f"  - {{name: {vf.name}, address: {address}, port: {IPV6_PORT + number}, vpc: {vf.vpc}, "
                f"private_address: {vf.private_address}{vf.more and ', ' + vf.more}}}\n"
                for number, vf in enumerate(vfs)
            )
            config.write_text(
                f"run_dir: {place / 'run'}\nkey_file: card.key\naudit_log: {place / 'audit.log'}\n"
                f"control_plane: {{key: {control_plane.public_key_file}}}\nvfs:\n{listed}"
                f"{more if isinstance(more, str) else more.get(name, '')}"
            )
            control_plane.add(name, address=address, public_key=key, run_dir=place / "run", vfs=vfs)
            running[name] = stack.enter_context(running_card_of(config, run_dir=place / "run"))
        if pushes:
            control_plane.push()
        yield control_plane, running
