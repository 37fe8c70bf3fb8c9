"""What demonstrations share: which there are, and how one ends, with status 0 if it went as it should, else with 1."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from netns.base.program import Program, ProgramCommand
from netns.errors import LabError
from netns.signals import signals_raise
from nitro_emu.errors import NitroError
from scripts.harness.errors import BenchError
from srd.errors import SrdError

STATUSES: Final = dict.fromkeys((BenchError, LabError, NitroError, SrdError), 1)
DEMOS: Final = {
    "card": "scripts.card_demo.run:command",
    "governance": "scripts.governance_demo:command",
    "training": "scripts.training_demo.run:command",
    "volume": "scripts.volume_demo.run:command",
}


class Demo(ProgramCommand):
    """The command of a demonstration. A signal ends it as an error does, so that all that it has made is removed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with signals_raise():
            return super().invoke(ctx)


demo: Final = partial(click.command, cls=Demo, statuses=STATUSES)


@click.group("scripts/demo", cls=Program, commands_at=DEMOS, statuses=STATUSES)
def main() -> None:
    """Run a demonstration."""
