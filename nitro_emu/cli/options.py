"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from netns.base.options import place_option
from nitro_emu.card.config import DEFAULT_RUN_DIR
from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import read_file

RUN_DIR_VARIABLE: Final = "NITRO_CARD_DIR"
"""Environment variable that names the run directory, for programs and for these commands."""

run_dir_option: Final = place_option(
    "--run-dir", variable=RUN_DIR_VARIABLE, default=DEFAULT_RUN_DIR, help_text="The card's directory of sockets."
)


class HexBytes(click.ParamType[bytes]):
    """Bytes in hexadecimal, at most so many; with `or_file` also those of a file, @FILE."""

    def __init__(self, *, most: int, or_file: bool = False) -> None:
        self.name = "HEX|@FILE" if or_file else "HEX"
        self._most = most
        self._or_file = or_file

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """Return the bytes."""
        text = str(value)
        try:
            if self._or_file and text.startswith("@"):
                return read_file(Path(text[1:]), max_bytes=self._most)
            found = bytes.fromhex(text)
        except TrustError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            self.fail(f"{text[:40]!r} is not hexadecimal", param, ctx)
        if len(found) > self._most:
            self.fail(f"has {len(found)} bytes; at most {self._most} are taken", param, ctx)
        return found
