"""The card: virtual functions of all kinds (`kinds`), in one process and one loop.

An internal error of one ends that one: its tenant sees the device go, and no other notices. A card without any ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from netns.base.naming import named
from nitro_emu.card.config import CardConfig
from nitro_emu.card.kinds import Function, Provided, function_of
from nitro_emu.card.shares import shared_out
from nitro_emu.card.trust import CardTrust
from nitro_emu.efa.card.poller import Poller
from nitro_emu.errors import CardError, TrustError, VpcError
from nitro_emu.express.handover import KeptInterface, leave_interfaces, take_interfaces
from nitro_emu.peers.attestation import OWN_USER_DATA
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.trust.alarms import Alarms
from srd.errors import UsageError

KEEP_ALIVE_S: Final = 1.0
"""How often programs that want it get a keep-alive event, as from the hardware."""
R = TypeVar("R")


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
        self._functions: dict[str, Function] = {}  # by name, those that an internal error has ended excepted
        self._failed: dict[str, str] = {}  # those, and the error
        self._poller: Poller | None = None
        self._is_draining = False
        self._keep_alive: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Boot, and open all virtual functions. Raises NitroError when one cannot be had; then none is."""
        with ExitStack() as opened:
            opened.callback(self.close)
            self._trust = await CardTrust.open(self.config)
            self._poller = Poller(poll_s=self.config.poll_s, busy_poll=self.config.busy_poll)
            kept = take_interfaces(self.config.vfs)
            for config in shared_out(self.config.vfs):
                given = self._provided(config, poller=self._poller, kept=kept.get(config.name))
                function = self._functions[config.name] = function_of(config, given)
                function.start()
            opened.pop_all()
        if self.trust.network is not None:
            self.trust.network.on_change(self._on_new_mapping)
        self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._on_keep_alive)

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

    def _provided(self, config: VfConfig, *, poller: Poller, kept: KeptInterface | None) -> Provided:
        name = config.name
        with named(f"{name}: ", UsageError, error=CardError):
            trust = self.trust.of(config)
        return Provided(
            trust=trust,
            card_key=self.trust.card_key,
            poller=poller,
            socket=self.config.run_dir / f"{name}.sock",
            has_neighbours=len(self.config.vfs) > 1,
            kept=kept,
            on_failure=lambda reason: self._fail(name, reason),
        )

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
            if (function := self._functions.pop(name, None)) is not None:
                function.fail()
        except Exception:
            self.log.exception("%s: was not closed in order", name)

    def _on_error(self, name: str, error: Exception) -> None:
        self.log.error("%s: internal error", name, exc_info=error)
        self._fail(name, f"internal error: {error!r}")

    def _each(self, work: Callable[[Function], R]) -> dict[str, R]:
        """Return what `work` gives for each virtual function; one for which it raises an error is ended."""
        found = {}
        for name, function in list(self._functions.items()):
            try:
                found[name] = work(function)
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                self._on_error(name, error)
        return found

    def _on_new_mapping(self) -> None:
        self._each(lambda function: function.on_new_mapping())

    def _on_keep_alive(self) -> None:
        self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._on_keep_alive)
        self._each(lambda function: function.keep_alive())
        if self.trust.network is not None:
            self.trust.network.check_expiry()

    async def drain(self, *, timeout_s: float) -> bool:
        """Let no further program in, and wait for the requests in progress; return whether all have ended."""
        self._is_draining = True
        busy = set(self._functions)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(self._drain(name, busy=busy) for name in self._functions))
        return not busy & self._functions.keys()

    async def _drain(self, name: str, *, busy: set[str]) -> None:
        try:
            await self._functions[name].drain()
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            self._on_error(name, error)
        busy.discard(name)

    def close(self) -> None:
        """End all programs' connections and all virtual functions, even if steps raise."""
        with ExitStack() as stack:
            if self._trust is not None:
                stack.callback(self._trust.close)
            if self._keep_alive is not None:
                stack.callback(self._keep_alive.cancel)
            if self._poller is not None:
                stack.callback(self._poller.close)
            while self._functions:
                stack.callback(self._functions.popitem()[1].close)

    # -- what it says of itself ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the state of the card and of its virtual functions."""
        said, configs = self._each(lambda function: function.status()), {vf.name: vf for vf in self.config.vfs}
        shown = {"kind", "address", "port", "vpc", "private_address"}
        return {
            "name": self.config.name,
            "state": "draining" if self._is_draining else "ready",
            "vfs": {name: configs[name].model_dump(include=shown) | values for name, values in said.items()}
            | {name: {"failed": reason} for name, reason in self._failed.items()},
            "trust": self.trust.status(),
        }

    def stats(self) -> dict[str, Any]:
        """Return the counters of all virtual functions."""
        return {"vfs": self._each(lambda function: function.stats()), "alarms": dict(self.trust.alarms.counts)}

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
        if gone := [vf.name for vf in self.config.vfs if vf.kept_settings and vf.name in self._failed]:
            raise TrustError(f"{gone[0]}: its interface has ended by an internal error; restart the card")
        version = await self.trust.accept_update(Path(manifest))
        self.updating.set()
        return {"version": version}

    def confine(self) -> Sequence[str]:
        """Give up what the process needs no more; return what was applied. Raises TrustError."""
        return self.trust.confine()

    def prepare_replacement(self) -> Callable[[], NoReturn]:
        """Return what replaces this process, to be called when all is closed. Raises TrustError."""
        kept = {name: interface for name, each in self._functions.items() if (interface := each.keep()) is not None}
        replace = self.trust.replacement()

        def hand_over() -> NoReturn:
            leave_interfaces(kept)
            replace()

        return hand_over
