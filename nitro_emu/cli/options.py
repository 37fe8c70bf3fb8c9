"""Options that several commands have."""

from __future__ import annotations

from typing import Final

from netns.base.options import place_option
from nitro_emu.card.config import DEFAULT_RUN_DIR

RUN_DIR_VARIABLE: Final = "NITRO_CARD_DIR"
"""Environment variable that names the run directory, for programs and for these commands."""

run_dir_option: Final = place_option(
    "--run-dir", variable=RUN_DIR_VARIABLE, default=DEFAULT_RUN_DIR, help_text="The card's directory of sockets."
)
