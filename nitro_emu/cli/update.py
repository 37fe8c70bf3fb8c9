"""`nitro-card update`: let a running card go on with new software, signed by its vendor."""

from __future__ import annotations

from pathlib import Path

import click

from netns.base.options import json_option
from nitro_emu.card.control import ask
from nitro_emu.cli.options import run_dir_option
from nitro_emu.cli.tables import print_result


@click.command()
@run_dir_option
@json_option
@click.argument("manifest", type=click.Path(path_type=Path))
def update(*, run_dir: Path, as_json: bool, manifest: Path) -> None:
    """Let the card check the software that MANIFEST describes, and go on with it.

    The security chip checks the vendor's signature and measures the files itself. An older version is refused.
    """
    found = ask(run_dir, "update", manifest=str(manifest.absolute()))
    print_result(found, as_json=as_json)
