"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from nitro_emu.card.config import DEFAULT_RUN_DIR

RUN_DIR_VARIABLE: Final = "NITRO_CARD_DIR"
"""Environment variable that names the run directory, for programs and for these commands."""

run_dir_option: Final = click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    envvar=RUN_DIR_VARIABLE,
    default=DEFAULT_RUN_DIR,
    show_default=True,
    show_envvar=True,
    help="The card's directory of sockets.",
)
