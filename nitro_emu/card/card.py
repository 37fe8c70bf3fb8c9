"""The card: virtual functions, each at its Unix socket, in one process and one loop.

An internal error of one ends that one: its tenant sees the device go, and no other notices. A card without any ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from netns.base.unix_sockets import listen, peer_credentials
from nitro_emu.card.config import CardConfig
from nitro_emu.card.shares import shared_out
from nitro_emu.card.trust import CardTrust
from nitro_emu.efa.abi.enums import AenqGroup
from nitro_emu.efa.abi.memory import CardState
from nitro_emu.efa.card.connection import Connection
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.efa.card.poller import Poller
from nitro_emu.efa.card.user_context import UserContext
from nitro_emu.errors import CardError, TrustError, VpcError
from nitro_emu.express.function import ExpressFunction
from nitro_emu.express.handover import KeptInterface, leave_interfaces, take_interfaces
from nitro_emu.peers.attestation import OWN_USER_DATA
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from srd.errors import UsageError

KEEP_ALIVE_S: Final = 1.0
"""How often programs that want it get a keep-alive event, as from the hardware."""
F = TypeVar("F", "Device", ExpressFunction)
R = TypeVar("R")


class Device:
    """A virtual function at its socket."""

    def __init__(self, vf: EfaFunction, path: Path) -> None:
        """Listen at `path`. Raises CardError."""
        self.vf = vf
        self.path = path
        self.connections: set[Connection] = set()
        self._allowed = {0, os.getuid() if vf.config.uid is None else vf.config.uid}
        try:
            self._sock = listen(path, kind=socket.SOCK_SEQPACKET, takes_descriptors=True)
            path.chmod(_mode_for(path, uid=vf.config.uid))  # the credentials are checked in any case
        except OSError as error:
            raise CardError(f"{path}: cannot listen: {error.strerror or error}") from error
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._on_connecting)

    @property
    def config(self) -> VfConfig:
        """Of the virtual function."""
        return self.vf.config

    def _on_connecting(self) -> None:
        if self.vf.closer.is_behind:
            self._pause("what programs have sent is not closed yet")
            return
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self.vf.device.alloc_ucontext_err += 1
                self._pause(error.strerror)
            return
        sock.setblocking(False)  # noqa: FBT003 - the library's signature
        pid, uid = peer_credentials(sock)
        if uid not in self._allowed or len(self.connections) >= self.vf.config.max_connections:
            self.vf.log.warning("pid %d of user %d may not open the device, or too many have", pid, uid)
            self.vf.device.alloc_ucontext_err += 1
            self.vf.closer.close_untrusted(sock.detach())
            return
        self.vf.log.info("pid %d has opened the device", pid)
        connection = Connection(sock, UserContext(self.vf, pid), on_closed=self._on_closed)
        self.connections.add(connection)

    def _pause(self, reason: str | None) -> None:
        """Accept nothing for a while: the socket stays readable."""
        self.vf.log.error("a program cannot open the device: %s", reason)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock.fileno())
        loop.call_later(0.1, self._resume)

    def _resume(self) -> None:
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._sock.fileno(), self._on_connecting)

    def _on_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.vf.log.info("pid %d has closed the device", connection.context.pid)

    def announce(self, state: CardState, *, group: AenqGroup) -> None:
        """Show the card's state to all programs, with an event."""
        for connection in self.connections:
            if (uar := connection.context.uar) is not None:
                uar.events.set_state(state)
                uar.events.push(group)

    def keep_alive(self) -> None:
        """Send the keep-alive event to the programs that want it."""
        for connection in self.connections:
            if (uar := connection.context.uar) is not None:
                uar.events.push(AenqGroup.KEEP_ALIVE)

    def stop_accepting(self) -> None:
        """Let no further program open the device."""
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self.vf.closer.close_untrusted(self._sock.detach())  # there may be connections that wait
            with suppress(FileNotFoundError):
                self.path.unlink()

    def close(self) -> None:
        """End all connections, and the virtual function."""
        with ExitStack() as stack:
            stack.callback(self.vf.close)
            for connection in list(self.connections):
                stack.callback(connection.close)
            stack.callback(self.stop_accepting)


def _mode_for(path: Path, *, uid: int | None) -> int:
    """Return the mode of a socket that a user may connect to, to whom it is given if that can be."""
    if uid is None:
        return 0o600
    try:
        os.chown(path, uid, -1)
    except OSError:  # not as root, or not as the root of that user
        return 0o666
    return 0o600


class Card:
    """All virtual functions of a configuration. `start`, then serve until `drain` and `close`."""

    def __init__(self, config: CardConfig) -> None:
        self.config = config
        self._trust: CardTrust | None = None
        self.log = logging.getLogger("nitro_emu")
        self.failed = asyncio.Event()
        """Set when all virtual functions have failed."""
        self.failure = ""
        self.updating = asyncio.Event()
        """Set when an update was accepted: the process is to replace itself."""
        self._devices: list[Device] = []
        self._interfaces: list[ExpressFunction] = []
        self._failed: dict[str, str] = {}  # virtual functions that an internal error has ended, and the error
        self._poller: Poller | None = None
        self._state = CardState.READY
        self._keep_alive: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Boot, and open all virtual functions. Raises NitroError when one cannot be had; then none is."""
        loop = asyncio.get_running_loop()
        self._trust = await CardTrust.open(self.config)
        self._poller = Poller(poll_s=self.config.poll_s, busy_poll=self.config.busy_poll)
        kept = take_interfaces(self.config.vfs)
        with ExitStack() as opened:
            opened.callback(self._poller.close)
            for vf_config in shared_out(self.config.vfs):
                if vf_config.interface is not None:
                    interface = self._open_interface(vf_config, kept=kept.get(vf_config.name))
                    opened.callback(interface.close)
                    self._interfaces.append(interface)
                    continue
                device = self._open(self._poller, vf_config)
                opened.callback(device.close)
                self._devices.append(device)
            opened.pop_all()
        if self.trust.network is not None:
            self.trust.network.on_change(self._on_new_mapping)
        self._keep_alive = loop.call_later(KEEP_ALIVE_S, self._on_keep_alive)

    @property
    def trust(self) -> CardTrust:
        """Keys and permissions. Raises CardError before `start`."""
        if self._trust is None:
            raise CardError(f"{self.config.name} has not started")
        return self._trust

    @property
    def alarms(self) -> Alarms:
        """What its owner must know."""
        return self.trust.alarms

    def _open(self, poller: Poller, vf_config: VfConfig) -> Device:
        name = vf_config.name
        trust = self._trust_of(vf_config)
        vf = EfaFunction(vf_config, trust=trust, poller=poller, on_failure=lambda reason: self._fail(name, reason))
        with ExitStack() as opened:
            opened.callback(vf.close)
            vf.start()
            device = Device(vf, self.config.run_dir / f"{name}.sock")
            opened.pop_all()
        return device

    def _open_interface(self, vf_config: VfConfig, *, kept: KeptInterface | None) -> ExpressFunction:
        name = vf_config.name
        trust = self._trust_of(vf_config)
        vf = ExpressFunction(vf_config, trust=trust, on_failure=lambda reason: self._fail(name, reason))
        with ExitStack() as opened:
            opened.callback(vf.close)
            vf.start(kept)
            vf.share_loop(is_shared=len(self.config.vfs) > 1)
            opened.pop_all()
        return vf

    def _trust_of(self, vf_config: VfConfig) -> VfTrust:
        try:
            return self.trust.of(vf_config)
        except UsageError as error:
            raise CardError(f"{vf_config.name}: {error}") from error

    # -- internal errors ----------------------------------------------------------------------------------------------

    def _fail(self, name: str, reason: str) -> None:
        """Take a virtual function out of service. May be called from within a turn of its engine."""
        if name in self._failed:
            return
        self._failed[name] = reason
        self.alarms.raise_alarm("device", f"{name}: {reason}; restart the card to have it again")
        if len(self._failed) == len(self.config.vfs):
            self.failure = f"{name}: {reason}"
            self.failed.set()
        asyncio.get_running_loop().call_soon(self._end, name)

    def _end(self, name: str) -> None:
        """Close a virtual function that has failed, however far that works."""
        try:
            with ExitStack() as stack:
                for device in [each for each in self._devices if each.config.name == name]:
                    self._devices.remove(device)
                    stack.callback(device.close)
                    stack.callback(device.announce, CardState.FATAL, group=AenqGroup.FATAL_ERROR)
                for interface in [each for each in self._interfaces if each.config.name == name]:
                    self._interfaces.remove(interface)
                    stack.callback(interface.close)
        except Exception:
            self.log.exception("%s: was not closed in order", name)

    def _each(self, functions: Sequence[F], work: Callable[[F], R]) -> dict[str, R]:
        """Return what `work` gives for each virtual function; one for which it raises an error is ended."""
        found = {}
        for each in list(functions):
            try:
                found[each.config.name] = work(each)
            except Exception as error:
                self.log.exception("%s: internal error", each.config.name)
                self._fail(each.config.name, f"internal error: {error!r}")
        return found

    def _on_new_mapping(self) -> None:
        self._each(self._devices, lambda device: device.vf.endpoint.on_new_mapping())
        self._each(self._interfaces, lambda interface: interface.endpoint.on_new_mapping())

    def _announce(self, state: CardState, *, group: AenqGroup) -> None:
        self._state = state
        self._each(self._devices, lambda device: device.announce(state, group=group))

    def _on_keep_alive(self) -> None:
        self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._on_keep_alive)
        self._each(self._devices, Device.keep_alive)
        if self.trust.network is not None:
            self.trust.network.check_expiry()

    async def drain(self, *, timeout_s: float) -> bool:
        """Let no further program in, and wait for the requests in progress; return whether all have ended."""
        for device in self._devices:
            device.stop_accepting()
        self._announce(CardState.DRAINING, group=AenqGroup.NOTIFICATION)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(device.vf.requester.idle.wait() for device in self._devices))
        return all(device.vf.is_idle for device in self._devices)

    def close(self) -> None:
        """End all programs' connections and all virtual functions, even if steps raise."""
        with ExitStack() as stack:
            if self._trust is not None:
                stack.callback(self._trust.close)
            if self._keep_alive is not None:
                stack.callback(self._keep_alive.cancel)
            if self._poller is not None:
                stack.callback(self._poller.close)
            while self._devices:
                stack.callback(self._devices.pop().close)
            while self._interfaces:
                stack.callback(self._interfaces.pop().close)

    # -- what it says of itself ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the state of the card and of its virtual functions."""
        return {
            "name": self.config.name,
            "state": self._state.name.lower(),
            "vfs": self._each(self._devices, _status)
            | self._each(self._interfaces, _interface_status)
            | {name: {"failed": reason} for name, reason in self._failed.items()},
            "trust": self.trust.status(),
        }

    def stats(self) -> dict[str, Any]:
        """Return the counters of all virtual functions."""
        vfs = self._each(self._devices, _stats) | self._each(self._interfaces, _interface_stats)
        return {"vfs": vfs, "alarms": dict(self.trust.alarms.counts)}

    # -- what the control socket asks of it ---------------------------------------------------------------------------

    def set_map(self, document: bytes) -> dict[str, Any]:
        """Take a mapping of the control plane. Raises VpcError with the reason why it does not count."""
        if self.trust.network is None:
            raise VpcError("this card has no control plane; set control_plane: key in its settings")
        return self.trust.network.set_map_untrusted(document)

    async def attest(self, *, nonce: bytes | None, user_data: bytes | None) -> bytes | None:
        """Return a document of the security chip for somebody else; None without a chip. Raises TrustError."""
        if user_data is not None and user_data.startswith(OWN_USER_DATA):
            raise TrustError(f"user_data: {OWN_USER_DATA.decode()} begins what the card itself states; give other data")
        chip = self.trust.chip
        return None if chip is None else await chip.attest(nonce=nonce, user_data=user_data, public_key=None)

    async def sign_head(self, *, records: int, head: str) -> bytes | None:
        """Return a document of the security chip that states the audit log's head; None without a chip."""
        user_data = OWN_USER_DATA + f" {self.config.name} audit log {records} {head}".encode()
        chip = self.trust.chip
        return None if chip is None else await chip.attest(nonce=None, user_data=user_data, public_key=None)

    async def update(self, manifest: str) -> dict[str, Any]:
        """Check a new manifest, and have the process replace itself by what it lists. Raises TrustError."""
        if gone := [vf.name for vf in self.config.vfs if vf.interface is not None and vf.name in self._failed]:
            raise TrustError(f"{gone[0]}: its interface has ended by an internal error; restart the card")
        version = await self.trust.accept_update(Path(manifest))
        self.updating.set()
        return {"version": version}

    def confine(self) -> Sequence[str]:
        """Give up what the process needs no more; return what was applied. Raises TrustError."""
        return self.trust.confine()

    def prepare_replacement(self) -> Callable[[], NoReturn]:
        """Return what replaces this process, to be called when all is closed. Raises TrustError."""
        kept = {each.config.name: interface for each in self._interfaces if (interface := each.keep()) is not None}
        replace = self.trust.replacement()

        def hand_over() -> NoReturn:
            leave_interfaces(kept)
            replace()

        return hand_over


def _status(device: Device) -> dict[str, Any]:
    vf = device.vf
    return {
        "address": vf.config.address,
        "port": vf.config.port,
        "gid": vf.gid.hex(":", 2),
        "mtu_bytes": vf.mtu_bytes,
        "security": vf.security_mode,
        "programs": sorted(connection.context.pid for connection in device.connections),
        "vpc": vf.config.vpc,
        "private_address": vf.config.private_address,
        "peers": len(vf.engine().peers),
    }


def _stats(device: Device) -> dict[str, Any]:
    vf = device.vf
    tables = vf.tables
    return {
        "port": vf.counters().as_dict(),
        "device": vf.device.as_dict(),
        "qkey_viol": vf.responder.qkey_violations,
        "bytes_copied": vf.bytes_copied,
        "vpc": asdict(vf.tenancy.counters),
        "allowance": asdict(vf.endpoint.allowance_counters()),
        "security": asdict(vf.endpoint.security_counters()),
        "resources": {
            "qps": len(tables.queue_pairs),
            "cqs": len(tables.completion_queues),
            "pds": len(tables.domains),
            "mrs": len(tables.memory),
            "ahs": len(tables.handles),
            "registered_bytes": tables.registered_bytes,
        },
    }


def _interface_status(vf: ExpressFunction) -> dict[str, Any]:
    config = vf.config
    return {
        "address": config.address,
        "port": config.port,
        "kind": config.kind,
        "vpc": config.vpc,
        "private_address": config.private_address,
        **vf.status(),
    }


def _interface_stats(vf: ExpressFunction) -> dict[str, Any]:
    return {
        "ena": vf.ena_counters(),
        "ena_state": vf.ena_state(),
        "dropped": vf.dropped(),
        "vpc": asdict(vf.tenancy.counters),
        "allowance": asdict(vf.allowance_counters()),
        "security": asdict(vf.endpoint.security_counters()),
    }
