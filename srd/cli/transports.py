"""The option `--card`: the package that drives cards, found by its entry point, as `srd` does not import it.

A package that has a `srd.file_transfer.transport.Transport` names it in its metadata:

    [project.entry-points."srd.transports"]
    card = "package.module:Class"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

import click

from srd.errors import UsageError
from srd.file_transfer.transport import Transport

GROUP: Final = "srd.transports"
CARD: Final = "card"

card_option: Final = click.option(
    "--card",
    metavar="DEVICE",
    help="Use this device of a card (nitro-card), such as efa_0; $NITRO_CARD_DIR names the card's directory.",
)


def card_transport() -> type[Transport]:
    """Return what drives cards. Raises click.UsageError if nothing does."""
    for found in entry_points(group=GROUP, name=CARD):
        try:
            transport: type[Transport] = found.load()
        except (ImportError, AttributeError) as error:
            raise click.UsageError(f"--card: {found.value} cannot be loaded: {error}; run make setup") from error
        return transport
    raise click.UsageError("--card: nothing that is installed here drives cards; in a checkout, run make setup")


def check_target(transport: type[Transport], target: str) -> None:
    """Raise click.UsageError for what is no target."""
    try:
        transport.check_target(target)
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def check_without(given: Mapping[str, bool]) -> None:
    """Refuse options that have no meaning with `--card`. `given`: by name, whether it was given."""
    for name, is_given in given.items():
        if is_given:
            raise click.UsageError(f"{name}: has no meaning with --card, as the card does that; leave out one of them")
