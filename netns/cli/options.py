"""Options that several commands of `srd-lab` have."""

from __future__ import annotations

from typing import Final

import click

LAB_OPTION: Final = click.option("--lab", "name", metavar="NAME", help="The lab; optional if only one is up.")
