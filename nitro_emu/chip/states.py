"""The states of the chip's boot, as a table, and what a card may ask in each.

    RESET --power on--> ROM --store is sound--> MEASURE --all is measured--> VERIFY --as signed--> RUN
                         |                         |                           |
                         +----------- fault -------+---------------------------+--> SEALED

Each state may be left by a reset, which a card's end and every new boot are. Only RUN has a secret to give.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from nitro_emu.errors import TrustError


class BootState(Enum):
    """Where the boot of the card is."""

    RESET = "RESET"
    """No card has been booted since the last one ended."""

    ROM = "ROM"
    """The chip checks its own store."""

    MEASURE = "MEASURE"
    """It measures image, configuration and environment."""

    VERIFY = "VERIFY"
    """It compares them with the signed manifest."""

    RUN = "RUN"
    """All is as signed: the card has its secret, and may attest."""

    SEALED = "SEALED"
    """Something was not; the card gets nothing until a boot that succeeds."""


class BootStep(Enum):
    """What moves the boot on."""

    POWER_ON = "power on"
    STORE_SOUND = "store is sound"
    MEASURED = "measured"
    AS_SIGNED = "as signed"
    FAULT = "fault"
    RESET = "reset"


TRANSITIONS: Final[Mapping[tuple[BootState, BootStep], BootState]] = {
    (BootState.RESET, BootStep.POWER_ON): BootState.ROM,
    (BootState.ROM, BootStep.STORE_SOUND): BootState.MEASURE,
    (BootState.MEASURE, BootStep.MEASURED): BootState.VERIFY,
    (BootState.VERIFY, BootStep.AS_SIGNED): BootState.RUN,
    (BootState.ROM, BootStep.FAULT): BootState.SEALED,
    (BootState.MEASURE, BootStep.FAULT): BootState.SEALED,
    (BootState.VERIFY, BootStep.FAULT): BootState.SEALED,
    **{(state, BootStep.RESET): BootState.RESET for state in BootState},
}

ALWAYS: Final = frozenset({"Boot", "Status"})

ANSWERED: Final[Mapping[BootState, frozenset[str]]] = {
    **dict.fromkeys(BootState, ALWAYS),
    BootState.RUN: ALWAYS | {"Attestation", "CheckUpdate"},
}
"""Requests of the booted card that are answered, by state; those of others are in `ALWAYS`."""


class Machine:
    """The state of one boot after another."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = BootState.RESET

    def step(self, step: BootStep) -> BootState:
        """Move on, and return the new state. Raises TrustError for a step that the table does not have."""
        after = TRANSITIONS.get((self.state, step))
        if after is None:
            raise TrustError(f"{self.state.value} has no step {step.value!r}; reset the chip")
        self.state = after
        return after
