"""The key of the card that a volume is attached by: in its security chip, or in a file, as its settings say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.card.config import load
from nitro_emu.card.trust import boot
from nitro_emu.chip.client import ChipClient
from nitro_emu.chip.messages import SECRET_BYTES
from nitro_emu.chip.store import ChipStore
from nitro_emu.trust.loaded import LoadGuard, without_bytecode
from nitro_emu.trust.locked import LockedSecret
from nitro_emu.trust.measure import software_root

_log: Final = logging.getLogger(__name__)


def public_key(card: Path) -> bytes:
    """Return the public key (X25519) of the card with these settings. Raises ConfigError, TrustError."""
    config = load(card)
    if config.chip is not None:
        return ChipStore(config.chip.directory).load().public_key
    return config.card_key().public_key().public_bytes_raw()


def prepare(card: Path) -> None:
    """Start this program anew without bytecode if the card has a chip, which measures sources. Raises ConfigError."""
    if load(card).chip is not None:
        without_bytecode()


async def private_key(card: Path) -> X25519PrivateKey:
    """Return the card's private key; `prepare` has been called. Raises ConfigError; TrustError if its chip refuses.

    The chip measures this software and the settings first, and serves one process: none beside a card that runs.
    """
    config = load(card)
    if config.chip is None:
        return config.card_key()
    LoadGuard(software_root(), on_refused=_log.warning)
    with LockedSecret(SECRET_BYTES) as secret, ChipClient.connect(config.chip.directory) as chip:
        return await boot(chip, config, secret=secret)
