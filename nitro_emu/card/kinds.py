"""The kinds of virtual functions: the settings of each, what makes it of these, and what the card asks of all.

A further kind is a class of settings (a `VfConfig`) and a class of functions (a `Function`), and its rows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

from pydantic import BeforeValidator, Field

from nitro_emu.ebs.config import EbsConfig
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.express.config import ExpressConfig
from nitro_emu.peers.vf_config import VfConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from nitro_emu.efa.card.poller import Poller
    from nitro_emu.express.handover import KeptInterface
    from nitro_emu.peers.vf_trust import VfTrust


class Function(Protocol):
    """A virtual function. Where one of these raises an error after `start`, the card ends that one by `fail`."""

    def start(self) -> None:
        """Open it. Raises NitroError; `close` is called then, too."""

    def on_new_mapping(self) -> None:
        """Go by a new mapping of the control plane."""

    def keep_alive(self) -> None:
        """Do what is due every second."""

    async def drain(self) -> None:
        """Let no further program in, tell those that are there, and wait for the requests in progress."""

    def keep(self) -> KeptInterface | None:
        """Return what the program goes on with that replaces this one in an update; None: nothing."""

    def fail(self) -> None:
        """Close it after an internal error: programs see the device go."""

    def close(self) -> None:
        """End it, and whatever it has opened."""

    def status(self) -> dict[str, Any]:
        """Return its state, besides what `VfConfig` has."""

    def stats(self) -> dict[str, Any]:
        """Return its counters, in groups by name (`nitro_emu.card.metrics`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """What a card gives a virtual function, of which each kind takes what it needs."""

    trust: VfTrust
    card_key: Callable[[], X25519PrivateKey]
    """Returns the card's private key. Raises ConfigError."""
    poller: Poller
    socket: Path
    """Where programs find it, if it has a socket."""
    has_neighbours: bool
    """Whether there are other virtual functions, with which it shares the loop."""
    kept: KeptInterface | None
    """What the program before a live update has kept of it."""
    on_failure: Callable[[str], None]
    """Is called with the reason when it has failed by an internal error."""


def _efa(config: EfaConfig, given: Provided) -> Function:
    from nitro_emu.efa.card.device import EfaDevice  # noqa: PLC0415 - slow to load, and settings need none

    return EfaDevice(config, trust=given.trust, poller=given.poller, path=given.socket, on_failure=given.on_failure)


def _express(config: ExpressConfig, given: Provided) -> Function:
    from nitro_emu.express.function import ExpressFunction  # noqa: PLC0415 - likewise

    return ExpressFunction(
        config,
        trust=given.trust,
        is_shared=given.has_neighbours,
        kept=given.kept,
        on_failure=given.on_failure,
    )


def _ebs(config: EbsConfig, given: Provided) -> Function:
    from nitro_emu.ebs.function import EbsFunction  # noqa: PLC0415 - likewise

    return EbsFunction(
        config,
        trust=given.trust,
        card_key=given.card_key,
        run_dir=given.socket.parent,
        on_failure=given.on_failure,
    )


def _with_kind(entry: object) -> object:
    return {"kind": "efa", **entry} if isinstance(entry, dict) else entry


AnyVfConfig = Annotated[EfaConfig | ExpressConfig | EbsConfig, Field(discriminator="kind"), BeforeValidator(_with_kind)]
"""An entry of `vfs`: the settings of one of the kinds, of EFA if it names none."""

_MAKERS: Final[Mapping[type[VfConfig], Callable[[Any, Provided], Function]]] = {
    EfaConfig: _efa,
    ExpressConfig: _express,
    EbsConfig: _ebs,
}


def function_of(config: VfConfig, given: Provided) -> Function:
    """Return a virtual function with these settings, to be started. Raises CardError."""
    return _MAKERS[type(config)](config, given)
