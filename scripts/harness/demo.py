"""Which demonstrations there are."""

from __future__ import annotations

from typing import Final

import click

from netns.base.program import Program
from scripts.harness.program import STATUSES

DEMOS: Final = {
    "card": "scripts.card_demo.run:command",
    "governance": "scripts.governance_demo:command",
    "training": "scripts.training_demo.run:command",
    "volume": "scripts.volume_demo.run:command",
}


@click.group("scripts/demo", cls=Program, commands_at=DEMOS, statuses=STATUSES)
def main() -> None:
    """Run a demonstration."""
