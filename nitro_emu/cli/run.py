"""`nitro-card run`: the card itself."""

from __future__ import annotations

from pathlib import Path

import click

from netns.base.options import json_lines_option
from nitro_emu.card.config import load
from nitro_emu.card.daemon import run
from nitro_emu.examples import file_named
from nitro_emu.trust.loaded import without_bytecode


@click.command("run")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    help="Directory of the sockets, instead of the file's run_dir.",
)
@json_lines_option
def run_command(*, config: Path, run_dir: Path | None, as_json: bool) -> int:
    """Serve the virtual functions in the file CONFIG, or the example of that name, until SIGTERM or SIGINT.

    Prints one line when programs can open the devices; the log goes to stderr. The first signal drains the card: open
    requests may end. The second ends it at once, with exit status 1.
    """
    settings = load(file_named(config))
    if settings.chip is not None:
        without_bytecode()
    if run_dir is not None:
        settings = settings.with_run_dir(run_dir.absolute())
    from nitro_emu.card.card import Card  # noqa: PLC0415 - slow to load, and needed by nothing but a card

    return run(settings, make_card=Card, as_json=as_json)
