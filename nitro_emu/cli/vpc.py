"""`nitro-vpc`: the control plane of cards, and what its file means.

Exit status 0: done; 1: it failed, or a card has refused the map; 2: wrong usage. Errors are one line on stderr.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from netns.base.options import json_lines_option, json_option
from netns.base.output import emit, print_json
from netns.base.printable import printable
from netns.base.program import Program, version_option
from netns.base.standard_streams import is_output_error
from netns.base.tables import print_fields, print_result, print_table, table
from nitro_emu.command import STATUSES
from nitro_emu.daemon_process import logging_to_stderr, raise_descriptor_limit, say_ready, until_stopped
from nitro_emu.errors import TrustError, VpcError
from nitro_emu.examples import file_named
from nitro_emu.trust.key_files import make_key_files, read_private_key
from nitro_emu.vpc.model import VpcMap, load
from nitro_emu.vpc.push import PushState
from nitro_emu.vpc.rules import Mapping, VpcInterface
from nitro_emu.vpc.server import PUSHES_PER_LIFETIME, ControlPlane, PushReport, Signer, push_once

MAX_PAIRS: Final = 10_000
"""Rows that `check` prints; of a larger map, those of one interface."""

_file_argument: Final = click.argument(
    "file", type=click.Path(path_type=Path), callback=lambda _context, _parameter, name: file_named(name)
)
"""Of a map, or the name of an example."""
_key_option: Final = click.option(
    "--key", "key_file", type=click.Path(path_type=Path), required=True, help="Private key that signs the map."
)


@click.group("nitro-vpc", cls=Program, statuses=STATUSES)
@version_option("nitro-vpc")
def cli() -> None:
    """Tell cards which interfaces there are, in which VPCs, and who may talk to whom.

    First steps:

    \b
      nitro-vpc check vpc                             show who may talk to whom, and why not
      nitro-vpc make-key control.pem                  make the key that cards know the map by
      nitro-vpc serve vpc --key control.pem
    """  # noqa: D301 - \b is click's mark for "do not rewrap"


@cli.command("make-key")
@click.argument("key_file", metavar="KEY.pem", type=click.Path(path_type=Path))
@json_option
def make_key_command(*, key_file: Path, as_json: bool) -> None:
    """Make the control plane's key: KEY.pem, and KEY.pub.pem, which the cards' settings name."""
    public = make_key_files(key_file)
    text = f"nitro-vpc: {key_file} is the private key; give cards {public}"
    print_result({"file": str(key_file), "public_file": str(public)}, as_json=as_json, text=text)


# -- check ------------------------------------------------------------------------------------------------------


@cli.command()
@_file_argument
@click.option("--from", "source", metavar="NAME", help="Only pairs from this interface: NAME or VPC/NAME.")
@click.option("--to", "destination", metavar="NAME", help="Only pairs to this interface.")
@json_option
def check(*, file: Path, source: str | None, destination: str | None, as_json: bool) -> None:
    """Check FILE, and show for each pair of interfaces whether EFA traffic may be, or the reason why not.

    With --from and --to, explain one pair. Rules are stateful: a pair is about who begins.
    """
    mapping = Mapping(load(file), version=1)
    sources = _named(mapping, source, option="--from")
    destinations = _named(mapping, destination, option="--to")
    if source is not None and destination is not None:
        _explain(mapping, sources[0], destinations[0], as_json=as_json)
        return
    if len(sources) * len(destinations) > MAX_PAIRS:
        raise VpcError(f"{file}: is right, but has more than {MAX_PAIRS} pairs; name one interface with --from")
    pairs = [(a, b, mapping.refusal(a, b)) for a in sources for b in destinations if a is not b]
    if as_json:
        rows = [{"from": str(a), "to": str(b), "allowed": reason is None, "reason": reason} for a, b, reason in pairs]
        print_json({"file": str(file), "pairs": rows})
    else:
        _print_pairs(pairs)


def _named(mapping: Mapping, name: str | None, *, option: str) -> Sequence[VpcInterface]:
    """Return the interfaces that an option means: all without it, else one."""
    if name is None:
        return mapping.interfaces
    found = [each for each in mapping.interfaces if name in {each.name, str(each)}]
    if not found:
        known = [str(each) for each in mapping.interfaces[:8]] + ["..."] * (len(mapping.interfaces) > 8)
        raise VpcError(f"{option} {name}: no such interface; there are {', '.join(known) or 'none'}")
    if len(found) > 1:
        raise VpcError(f"{option} {name}: more than one has that name; give {' or '.join(map(str, found))}")
    return found


def _print_pairs(pairs: Sequence[tuple[VpcInterface, VpcInterface, str | None]]) -> None:
    made = table("from", "to", "may talk", "reason")
    for a, b, reason in pairs:
        made.add_row(str(a), str(b), "yes" if reason is None else "no", printable(reason or ""))
    if pairs:
        print_table(made)
        click.echo()
    allowed = sum(reason is None for _, _, reason in pairs)
    click.echo(f"{allowed} of {len(pairs)} pairs may talk; traffic between cards is always encrypted")


def _explain(mapping: Mapping, source: VpcInterface, destination: VpcInterface, *, as_json: bool) -> None:
    reason, grounds = mapping.refusal(source, destination), mapping.grounds(source, destination)
    ends = {"from": _described(source), "to": _described(destination)}
    if as_json:
        print_json({**ends, "allowed": reason is None, "reason": reason, "grounds": grounds})
        return
    print_fields({name: " ".join(f"{key}={value}" for key, value in end.items()) for name, end in ends.items()})
    click.echo("may talk" if reason is None else f"may not talk: {printable(reason)}")
    for line in grounds:
        click.echo(f"  {printable(line)}")


def _described(interface: VpcInterface) -> dict[str, Any]:
    return {
        "name": str(interface),
        "address": interface.address,
        "groups": ",".join(interface.groups) or "none",
        "card": interface.card.name,
        "card_address": interface.card.address,
        "port": interface.port,
        "region": interface.card.region,
    }


# -- push and serve ---------------------------------------------------------------------------------------------


def _signer(key_file: Path) -> Signer:
    """Return what signs maps. Raises TrustError, which says how to make a key where there is none."""
    try:
        return Signer(read_private_key(key_file))
    except TrustError as error:
        if key_file.exists():
            raise
        raise TrustError(f"{key_file}: is not there; nitro-vpc make-key {key_file} makes a key") from error


@cli.command()
@_file_argument
@_key_option
@json_lines_option
def push(*, file: Path, key_file: Path, as_json: bool) -> int:
    """Send the map in FILE to its cards once; exit with status 1 if one of them has not accepted it."""
    signer = _signer(key_file)
    raise_descriptor_limit()  # a connection a card
    reports = asyncio.run(push_once(load(file), signer=signer))
    for report in reports:
        _print_report(report, as_json=as_json)
    return int(any(report.outcome.state is not PushState.ACCEPTED for report in reports))


@cli.command()
@_file_argument
@_key_option
@json_lines_option
def serve(*, file: Path, key_file: Path, as_json: bool) -> int:
    """Keep the cards in FILE supplied with its map until SIGTERM or SIGINT; follow edits of FILE.

    Prints a line when it is ready, and one for each card whose state changes. SIGHUP reads FILE at once.
    """
    signer = _signer(key_file)
    raise_descriptor_limit()  # a connection a card
    with logging_to_stderr(as_json=as_json):
        try:
            asyncio.run(_serve(file, signer=signer, as_json=as_json))
        except VpcError:
            raise
        except Exception as error:
            inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            if is_output_error(inner):
                raise inner from None
            raise VpcError(f"internal error: {type(inner).__name__}: {inner}") from error
    return 0


async def _serve(file: Path, *, signer: Signer, as_json: bool) -> None:
    plane = ControlPlane(file, signer=signer, report=lambda report: _print_report(report, as_json=as_json))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, plane.reload)

    async def served() -> None:
        _say_ready(plane.map, file=file, as_json=as_json)
        await plane.run()

    await until_stopped(served())


def _say_ready(vpc_map: VpcMap, *, file: Path, as_json: bool) -> None:
    interfaces = sum(len(vpc.interfaces) for vpc in vpc_map.vpcs.values())
    counts = {"cards": len(vpc_map.cards), "vpcs": len(vpc_map.vpcs), "interfaces": interfaces}
    every_s = vpc_map.lifetime_s / PUSHES_PER_LIFETIME
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    line = f"nitro-vpc: serves {file}: {listed}, pushed every {every_s:g} s and at each change"
    say_ready(line, as_json=as_json, file=str(file), **counts, every_s=every_s)


def _print_report(report: PushReport, *, as_json: bool) -> None:
    outcome = report.outcome
    if as_json:
        fields = {
            "card": report.card,
            "push": report.address,
            "state": outcome.state.value,
            "edition": report.edition,
            "version": outcome.version,
            "reason": outcome.reason,
        }
        emit("card", **fields)
        return
    line = f"nitro-vpc: {report.card}: {outcome.state.value}"
    line += f" edition {report.edition} (version {outcome.version})" if outcome.state is PushState.ACCEPTED else ""
    print(line + (f": {printable(outcome.reason)}" if outcome.reason else ""), flush=True)


if __name__ == "__main__":
    cli()
