"""The process of a card: start, signals, orderly end.

Theory of operation. The run directory is locked first, so that only one card serves it. Then the card and the control
socket start, and the process says that it is ready: a line on stdout, and READY=1 to systemd. The first SIGTERM or
SIGINT drains the card: programs are told, open requests may end, for `DRAIN_TIMEOUT_S` at most. A second one ends the
process at once. In every case what was made is removed, by recorded names. Other errors are exceptions of `run`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from devmem.errors import DevmemError
from netns.base import event_loop
from netns.base.addresses import host_port_text
from netns.base.collector import tune_collector
from netns.base.http_server import HttpServer
from netns.base.tasks import first_ended
from nitro_emu.card.config import CardConfig
from nitro_emu.card.control import CardControlServer
from nitro_emu.card.metrics import handler
from nitro_emu.daemon_process import logging_to_stderr, raise_descriptor_limit, say_ready
from nitro_emu.errors import CardError, NitroError
from nitro_emu.log_ring import LogRing
from nitro_emu.run_directory import CONTROL_SOCKET, RunDirectory
from nitro_emu.trust.audit_log import AuditLog
from srd.errors import SrdError
from srd.sd_notify import sd_notify

if TYPE_CHECKING:
    from nitro_emu.card.card import Card

DRAIN_TIMEOUT_S: Final = 10.0
"""How long open requests may take to end after the first signal: several times the time after which a peer counts as
unresponsive, and little of the 90 s that systemd waits."""

STOP_WITHIN_S: Final = 2.0
"""Longest time from the second signal to the end of the process."""


_log: Final = logging.getLogger(__name__)


class _Outcome(NamedTuple):
    """How a card has ended: its exit status, or what replaces the process after an update."""

    status: int
    replace: Callable[[], NoReturn] | None = None


class _StopSignals:
    """The signals that end the process: the first drains, the second ends it at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._backstop: threading.Timer | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self.first.is_set():
            _log.info("%s: draining; another one ends the card at once", number.name)
            self.first.set()
        elif not self.second.is_set():
            _log.warning("%s: ending at once", number.name)
            self.second.set()
            self._backstop = threading.Timer(STOP_WITHIN_S, os._exit, [1])
            self._backstop.daemon = True
            self._backstop.start()

    def close(self) -> None:
        """Cancel the backstop."""
        if self._backstop is not None:
            self._backstop.cancel()


def run(config: CardConfig, *, make_card: Callable[[CardConfig], Card], as_json: bool = False) -> int:
    """Run a card until a signal ends it; return the exit status: 0 after a drain, 1 after a second signal.

    `make_card`: `Card`, which is slow to load; `as_json`: write log and ready line as JSON. Raises NitroError, SrdError
    or DevmemError, as one line, for whatever else ends the card.
    """
    raise_descriptor_limit()  # each program, ring and path takes some
    ring = LogRing()
    with logging_to_stderr(ring, as_json=as_json, level=config.log_level.upper()):
        try:
            outcome = event_loop.run(_serve(config, make_card=make_card, ring=ring, as_json=as_json))
        except (NitroError, SrdError, DevmemError):
            raise
        except Exception as error:
            if config.log_level == "debug":
                traceback.print_exc()
            raise CardError(f"{config.name}: internal error: {type(error).__name__}: {error}") from error
    if outcome.replace is not None:
        outcome.replace()
    return outcome.status


async def _serve(
    config: CardConfig, *, make_card: Callable[[CardConfig], Card], ring: LogRing, as_json: bool
) -> _Outcome:
    stop = _StopSignals()
    sockets = [vf.name for vf in config.vfs] + [Path(CONTROL_SOCKET).stem]
    async with AsyncExitStack() as opened:
        opened.callback(stop.close)
        directory = opened.enter_context(RunDirectory.claim(config.run_dir, names=sockets))
        card = make_card(config)
        opened.callback(card.close)
        if await first_ended(card.start(), stop.first.wait()):
            return _Outcome(0)
        audit = opened.enter_context(AuditLog(config.audit_path))
        for measure in card.confine():  # before threads start, which it would not bind
            _log.info("confined: %s", measure)
        await _open_doors(card, ring=ring, audit=audit, opened=opened)
        tune_collector()
        _say_ready(config, as_json=as_json)
        if await first_ended(stop.first.wait(), card.updating.wait(), card.failed.wait()) == 2:
            raise CardError(f"{config.name}: {card.failure}")
        is_update = card.updating.is_set() and not stop.first.is_set()
        sd_notify("RELOADING=1" if is_update else "STOPPING=1")
        if await first_ended(_drain(card), stop.second.wait()):
            return _Outcome(1)
        if not is_update or stop.first.is_set():  # a signal during the drain of an update ends the card
            return _Outcome(0)
        directory.keep()  # a confined process could not make it again
        return _Outcome(0, card.prepare_replacement())


async def _drain(card: Card) -> None:
    if not await card.drain(timeout_s=DRAIN_TIMEOUT_S):
        _log.warning("requests are still open after %s s", DRAIN_TIMEOUT_S)


async def _open_doors(card: Card, *, ring: LogRing, audit: AuditLog, opened: AsyncExitStack) -> None:
    """Start the control socket, and the metrics if they are configured."""
    config = card.config
    vf_uids = frozenset(vf.uid for vf in config.vfs if vf.uid is not None)
    control = CardControlServer(card, log=ring, audit=audit, vf_uids=vf_uids, alarms=card.alarms)
    opened.push_async_callback(control.close)
    await control.start()
    if config.control_plane is not None and (address := config.control_plane.listen) is not None:
        port = await control.serve_tcp(address)
        _log.info("mappings are accepted at %s port %d", address[0], port)
    if (address := card.config.metrics) is not None:
        routes = {"/metrics": handler(card.stats)}
        metrics = await HttpServer.listen(address, routes=routes, option="metrics:", error=CardError)
        opened.push_async_callback(metrics.close)
        _log.info("metrics at http://%s/metrics", host_port_text(*metrics.address))


def _say_ready(config: CardConfig, *, as_json: bool) -> None:
    names, run_dir = [vf.name for vf in config.vfs], str(config.run_dir)
    line = f"nitro-card: {config.name} serves VFs {', '.join(names)} in {run_dir}"
    try:
        say_ready(line, as_json=as_json, name=config.name, vfs=names, run_dir=run_dir)
    except OSError as error:
        raise CardError(f"stdout: cannot be written to: {error.strerror}") from error
