"""A card without devices, for tests of what surrounds it; `python fake_card.py CONFIG BEHAVIOUR` runs one."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from netns.base.program import ProgramCommand
from nitro_emu.card.card import Card
from nitro_emu.card.config import CardConfig, load
from nitro_emu.card.daemon import run
from nitro_emu.command import STATUSES
from nitro_emu.counters import DeviceCounters, PortCounters
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.errors import CardError, TrustError
from nitro_emu.trust.alarms import Alarms


def config_in(run_dir: Path, **changes: Any) -> CardConfig:
    return CardConfig(name="card", run_dir=run_dir, vfs=(EfaConfig(name="efa_0", address="127.0.0.1"),), **changes)


class FakeCard(Card):
    """Does what its behaviour says: "well", or how it fails."""

    def __init__(self, config: CardConfig, *, behaviour: str = "well") -> None:
        super().__init__(config)
        self._alarms = Alarms()
        self.ports = {vf.name: PortCounters() for vf in config.vfs}
        self.maps: list[bytes] = []
        self.manifests: list[str] = []
        self.document: bytes | None = None
        self.attested: list[dict[str, bytes | None]] = []
        self._behaviour = behaviour

    @property
    def alarms(self) -> Alarms:
        return self._alarms

    async def start(self) -> None:
        if self._behaviour == "refuses":
            raise CardError("efa_0: the address is not of this host\x1b[2J")
        if self._behaviour == "crashes":
            raise ZeroDivisionError("in the card")
        if self._behaviour == "starts for ever":
            sys.stdout.write("starting\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        logging.getLogger("nitro_emu.device").info("started")
        if self._behaviour == "fails later":
            self.failure = "efa_0: the engine has failed"
            asyncio.get_running_loop().call_soon(self.failed.set)

    async def drain(self, *, timeout_s: float) -> bool:
        sys.stdout.write(f"draining for {timeout_s} s\n")
        sys.stdout.flush()
        if self._behaviour == "drains for ever":
            await asyncio.Event().wait()
        if self._behaviour == "crashes in drain":
            raise ZeroDivisionError("in the drain")
        return self._behaviour != "drains in part"

    def confine(self) -> Sequence[str]:
        return []

    def prepare_replacement(self) -> Callable[[], NoReturn]:
        raise CardError("a fake card is not replaced")

    def close(self) -> None:
        logging.getLogger("nitro_emu.device").info("closed")

    def status(self) -> dict[str, Any]:
        return {"name": self.config.name, "vfs": {name: {"state": "ready"} for name in self.ports}}

    def stats(self) -> dict[str, Any]:
        return {"vfs": {name: stats_of(port) for name, port in self.ports.items()}}

    def set_map(self, document: bytes) -> dict[str, Any]:
        if document == b"forged":
            raise TrustError("the signature does not hold")
        self.maps.append(document)
        return {"version": len(self.maps)}

    async def update(self, manifest: str) -> dict[str, Any]:
        self.manifests.append(manifest)
        return {"version": len(self.manifests)}

    async def attest(self, *, nonce: bytes | None, user_data: bytes | None) -> bytes | None:
        self.attested.append({"nonce": nonce, "user_data": user_data})
        return self.document

    async def sign_head(self, *, records: int, head: str) -> bytes | None:
        return None if self.document is None else f"{records} {head}".encode()


def stats_of(port: PortCounters) -> dict[str, Any]:
    resources = {"qps": 2, "cqs": 1}
    device = asdict(DeviceCounters())
    return {"port": asdict(port), "device": device, "qkey_viol": 0, "bytes_copied": 0, "resources": resources}


class BrokenCard(FakeCard):
    """A card that cannot say how it is."""

    def status(self) -> dict[str, Any]:
        raise ZeroDivisionError("in status")

    def stats(self) -> dict[str, Any]:
        return {"vfs": object()}  # what JSON does not have


def maker(behaviour: str) -> Callable[[CardConfig], FakeCard]:
    return lambda config: FakeCard(config, behaviour=behaviour)


if __name__ == "__main__":
    import click

    @click.command("nitro-card", cls=ProgramCommand, statuses=STATUSES)
    @click.argument("config", type=click.Path(path_type=Path))
    @click.argument("behaviour")
    @click.option("--json-lines", "as_json", is_flag=True)
    def main(config: Path, behaviour: str, *, as_json: bool) -> int:
        return run(load(config), make_card=maker(behaviour), as_json=as_json)

    main()
