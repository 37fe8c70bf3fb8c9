"""The commands of benches and demonstrations: how one ends, with status 0 if it went as it should, else with 1."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from netns.base.program import ProgramCommand
from netns.errors import LabError
from netns.signals import signals_raise
from nitro_emu.errors import NitroError
from scripts.harness.errors import BenchError
from srd.errors import SrdError

STATUSES: Final = dict.fromkeys((BenchError, LabError, NitroError, SrdError), 1)


class Unwound(ProgramCommand):
    """A command that a signal ends as an error does, so that all that it has made is removed."""

    def invoke(self, ctx: click.Context) -> Any:
        with signals_raise():
            return super().invoke(ctx)


program: Final = partial(click.command, cls=Unwound, statuses=STATUSES)
