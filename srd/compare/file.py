"""Grids from YAML files.

    name: incast                     # optional: the file's name without .yaml
    fabrics:                         # a topology as srd-lab takes it: an example, a file, or written here
      two hosts: reference
      racks: {leaf_spine: {leaves: 2, spines: 4, hosts_per_leaf: 4, link: {delay: 0.5ms, rate: 25mbit}}}
    transports: [srd, cubic, bbr, mptcp]                  # optional: all
    conditions:                                           # optional: clean
      clean: {}
      loss: {shape: {loss: 1%}}                           # of each link from a spine: a path has it once, each way
      reordering: {shape: {delay: 2ms 1ms}}
      flapping: {events: [{at: 1s, fail: spine1, for: 500ms}]}      # as srd-lab run-schedule takes it
      dead link: {busiest_link_fails_at: 40%}             # when so much has arrived, the one that carried most of it
    workloads:
      bulk: {bulk: {size: 64M}}                           # the first host to the last
      incast: {incast: {senders: 4, size: 8M}}            # to the last host, at once
      mesh: {all_to_all: {size: 4M}}                      # every host to every host of another leaf, at once
      search: {rpc: {sizes: web-search, load: 30%, duration: 5s, scale: 0.01}}    # or data-mining; scale: of sizes
      copy: {file: {size: 256M}}                          # or {path: FILE}: as srd send and srd recv do it, encrypted
    seeds: 3                                              # optional: 1; a number, or a list
    timeout: 30s                                          # optional: how long a cell's flows may take
    wanted:                                               # optional: bounds of medians, which the report checks
      - {transport: srd, figure: goodput, over: mptcp, least: 1}
      - {transport: srd, figure: sent_again, most: 3%, conditions: [loss]}
    must_complete: [srd]                                  # optional: if a cell of these is not ok, the exit status is 1

Every mistake is one line with file, key and value: GridError.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from netns.base.files import file_or_example
from netns.base.message_sizes import DISTRIBUTIONS
from netns.base.units import UnitError, parse_duration_us, parse_percent, parse_rate_bps, parse_size
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import ShapeError, TopologyError
from netns.examples import file_named
from netns.faults.schedule import check_events, in_order, parse_events
from netns.topology.file import parse_topology, read_topology
from netns.topology.model import MAX_SEED, Topology
from srd.compare.errors import GridError
from srd.compare.fabric import conditioned, links_that_can_fail, uplink_bps
from srd.compare.grid import FIGURES, TRANSPORTS, Condition, Grid, WantedFigure
from srd.compare.traffic import AllToAll, Bulk, File, Incast, Rpc, Traffic, TrafficError
from srd.compare.worker.plan import MAX_FLOW_BYTES

BUILT_IN: Final = Path(__file__).parent / "grids"
NAMES: Final = tuple(sorted(path.stem for path in BUILT_IN.glob("*.yaml")))
MAX_CELLS: Final = 100_000
MAX_SEEDS: Final = 1000
MAX_FILE_BYTES: Final = 1 << 40
MAX_TIMEOUT_S: Final = 3600.0
_LAB_NAME: Final = "compare"

Quantity = str | int | float


class _Condition(Strict):
    shape: dict[str, Any] = Field(default_factory=dict)
    events: list[dict[str, Any]] = Field(default_factory=list)
    busiest_link_fails_at: Quantity | None = None


class _Bulk(Strict):
    size: Quantity


class _FileSent(Strict):
    size: Quantity | None = None
    path: str | None = None


class _Incast(Strict):
    senders: int = Field(ge=1, le=254)
    size: Quantity


class _AllToAll(Strict):
    size: Quantity


class _Rpc(Strict):
    sizes: str
    load: Quantity
    duration: Quantity
    scale: float | int = Field(default=1, gt=0, le=1)


class _Workload(Strict):
    bulk: _Bulk | None = None
    file: _FileSent | None = None
    incast: _Incast | None = None
    all_to_all: _AllToAll | None = None
    rpc: _Rpc | None = None


class _Wanted(Strict):
    transport: str
    figure: str
    over: str | None = None
    least: Quantity | None = None
    most: Quantity | None = None
    conditions: list[str] = Field(default_factory=list)


class _File(Strict):
    name: str | None = None
    fabrics: dict[str, str | dict[str, Any]] = Field(min_length=1)
    transports: list[str] = Field(default=list(TRANSPORTS), min_length=1)
    conditions: dict[str, _Condition] = Field(default={"clean": _Condition()}, min_length=1)
    workloads: dict[str, _Workload] = Field(min_length=1)
    seeds: Any = 1  # a number or a list: `_seeds` checks it, as pydantic's messages for unions are unclear
    timeout: Quantity = "30s"
    wanted: list[_Wanted] = Field(default_factory=list)
    must_complete: list[str] = Field(default_factory=list)


def grid_file(name: str) -> Path:
    """Return the file `name`, or the built-in grid of that name if there is no such file."""
    return file_or_example(name, examples=BUILT_IN)


def read_grid(path: Path) -> Grid:
    """Return the grid in a YAML file, checked: whatever it asks for can be tried. Raises GridError."""
    try:
        document = load_mapping(path, error=GridError, wanted="holds no grid; give fabrics and workloads")
        grid = _grid(validated(_File, document, error=GridError), default_name=path.stem, base=path.parent)
        check(grid)
    except (GridError, TopologyError, ShapeError, UnitError, TrafficError) as error:
        raise GridError(f"{path}: {error}") from None
    return grid


def _grid(file: _File, *, default_name: str, base: Path) -> Grid:
    _require_known(file.transports, known=TRANSPORTS, at="transports")
    _require_known(file.must_complete, known=TRANSPORTS, at="must_complete")
    return Grid(
        name=file.name or default_name,
        fabrics={name: _fabric(given, at=f"fabrics.{name}", base=base) for name, given in file.fabrics.items()},
        transports=tuple(dict.fromkeys(file.transports)),
        conditions={
            name: _condition(given, at=f"conditions.{name}", base=base) for name, given in file.conditions.items()
        },
        workloads={name: _workload(given, at=f"workloads.{name}", base=base) for name, given in file.workloads.items()},
        seeds=_seeds(file.seeds),
        timeout_s=_quantity(_seconds, file.timeout, at="timeout", least=0.1, most=MAX_TIMEOUT_S),
        wanted=tuple(
            _wanted(given, at=f"wanted[{index}]", conditions=file.conditions) for index, given in enumerate(file.wanted)
        ),
        must_complete=tuple(file.must_complete),
    )


def _require_known(given: Iterable[str], *, known: Collection[str], at: str) -> None:
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise GridError(f"{at}: {unknown!r} is unknown; use {', '.join(known)}")


def _wanted(given: _Wanted, *, at: str, conditions: Collection[str]) -> WantedFigure:
    _require_known([given.transport], known=TRANSPORTS, at=f"{at}.transport")
    _require_known([given.over] if given.over else [], known=TRANSPORTS, at=f"{at}.over")
    _require_known([given.figure], known=FIGURES, at=f"{at}.figure")
    _require_known(given.conditions, known=conditions, at=f"{at}.conditions")
    if (given.least is None) == (given.most is None):
        raise GridError(f"{at}: give least or most, one of them")

    def bound(value: Quantity | None, *, key: str) -> float | None:
        if value is None:
            return None
        parse = _number if given.over else parse_rate_bps if given.figure == "goodput" else _share
        return _quantity(parse, value, at=f"{at}.{key}", least=0, most=1e15)

    return WantedFigure(
        given.transport,
        given.figure,
        over=given.over,
        least=bound(given.least, key="least"),
        most=bound(given.most, key="most"),
        conditions=tuple(given.conditions),
    )


def _fabric(given: str | dict[str, Any], *, at: str, base: Path) -> Topology:
    try:
        if isinstance(given, str):
            return read_topology(base / given if (base / given).exists() else file_named(given))
        return parse_topology(given, default_name=_LAB_NAME, base=base)
    except (TopologyError, ShapeError) as error:
        raise GridError(f"{at}: {error}") from None


def _condition(given: _Condition, *, at: str, base: Path) -> Condition:
    try:
        events = in_order(parse_events({"events": given.events}, base=base))
    except (TopologyError, ShapeError) as error:
        raise GridError(f"{at}.{error}") from None
    fails_at = given.busiest_link_fails_at
    if fails_at is not None:
        fails_at = _quantity(_share, fails_at, at=f"{at}.busiest_link_fails_at", least=0, most=1)
    return Condition(shape=given.shape, events=events, busiest_link_fails_at=fails_at, base=base)


def _workload(given: _Workload, *, at: str, base: Path) -> Traffic:
    kinds = [key for key in _Workload.model_fields if getattr(given, key) is not None]
    if len(kinds) != 1:
        raise GridError(f"{at}: has {len(kinds) or 'none'} of {', '.join(_Workload.model_fields)}; give one")

    def size(value: Quantity) -> int:
        return int(_quantity(parse_size, value, at=f"{at}.{kinds[0]}.size", least=1, most=MAX_FLOW_BYTES))

    if given.bulk is not None:
        return Bulk(size(given.bulk.size))
    if given.file is not None:
        return _file(given.file, at=f"{at}.file", base=base)
    if given.incast is not None:
        return Incast(given.incast.senders, size(given.incast.size))
    if given.all_to_all is not None:
        return AllToAll(size(given.all_to_all.size))
    assert given.rpc is not None  # noqa: S101 - one of them is given
    rpc = given.rpc
    if rpc.sizes not in DISTRIBUTIONS:
        raise GridError(f"{at}.rpc.sizes: {rpc.sizes!r} is unknown; use {' or '.join(DISTRIBUTIONS)}")
    return Rpc(
        rpc.sizes,
        load=_quantity(_share, rpc.load, at=f"{at}.rpc.load", least=0.001, most=1),
        duration_s=_quantity(_seconds, rpc.duration, at=f"{at}.rpc.duration", least=0.01, most=MAX_TIMEOUT_S),
        scale=float(rpc.scale),
    )


def _file(given: _FileSent, *, at: str, base: Path) -> File:
    if (given.size is None) == (given.path is None):
        raise GridError(f"{at}: give size or path, one of them")
    if given.path is not None:
        return file_to_send(base / given.path, at=f"{at}.path")
    return File(file_size(given.size or 0, at=f"{at}.size"))


def file_size(value: Quantity, *, at: str) -> int:
    """Return the size of a file of random bytes. Raises GridError."""
    return int(_quantity(parse_size, value, at=at, least=1, most=MAX_FILE_BYTES))


def file_to_send(path: Path, *, at: str) -> File:
    """Return a workload that sends this file. Raises GridError."""
    try:
        if not path.is_file():
            raise GridError(f"{at}: {path}: {'no regular file' if path.exists() else 'No such file'}")
        with path.open("rb") as opened:
            size_bytes = os.fstat(opened.fileno()).st_size
    except OSError as error:
        raise GridError(f"{at}: {path}: {error.strerror}") from None
    if not size_bytes:
        raise GridError(f"{at}: {path}: is empty")
    return File(size_bytes, str(path.resolve()))


def _seeds(given: Any) -> tuple[int, ...]:
    if type(given) is int and 1 <= given <= MAX_SEEDS:
        return tuple(range(1, given + 1))
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_SEEDS:
        raise GridError(f"seeds: {reprlib.repr(given)} is no number between 1 and {MAX_SEEDS}, nor a list of seeds")
    wrong = next((seed for seed in given if type(seed) is not int or not 0 <= seed <= MAX_SEED), None)
    if wrong is not None:
        raise GridError(f"seeds: {reprlib.repr(wrong)} is no number between 0 and {MAX_SEED}")
    return tuple(dict.fromkeys(given))


def _quantity(parse: Callable[[Any], float], value: Quantity, *, at: str, least: float, most: float) -> float:
    try:
        number = parse(value)
    except UnitError as error:
        raise GridError(f"{at}: {error}") from None
    if not least <= number <= most:
        raise GridError(f"{at}: {value} is not between {_as_given(parse, least)} and {_as_given(parse, most)}")
    return number


def _as_given(parse: Callable[[Any], float], number: float) -> str:
    if parse is _share:
        return f"{100 * number:g}%"
    return f"{number:g}s" if parse is _seconds else f"{number:g}"


def _number(value: Quantity) -> float:
    try:
        return float(value)
    except ValueError:
        raise UnitError(f"{value} is no number") from None


def _seconds(value: Quantity) -> float:
    return parse_duration_us(value) / 1e6


def _share(value: Quantity) -> float:
    return parse_percent(value) / 100


def check(grid: Grid) -> None:
    """Raise for the first combination that no lab or no flows can be made of."""
    if len(grid) > MAX_CELLS:
        raise GridError(f"the grid has {len(grid)} cells, and at most {MAX_CELLS} can be; give fewer of something")
    for fabric, topology in grid.fabrics.items():
        for name, condition in grid.conditions.items():
            at = f"conditions.{name}"
            try:
                check_events(condition.events, topology)
                conditioned(topology, condition, name=topology.name, seed=topology.seed)
            except TopologyError as error:
                raise GridError(f"{at}.{error} (in fabric {fabric})") from None
            except ShapeError as error:
                raise GridError(f"{at}.shape.{error}") from None
            if condition.busiest_link_fails_at is not None and not links_that_can_fail(topology):
                raise GridError(f"{at}.busiest_link_fails_at: fabric {fabric} has no link between switches")
        for name, traffic in grid.workloads.items():
            if isinstance(traffic, Rpc) and uplink_bps(topology) == float("inf"):
                raise GridError(
                    f"workloads.{name}.rpc.load: fabric {fabric} has links without a rate; give them one, as in "
                    f"link: {{rate: 250mbit}}"
                )
            try:
                for seed in grid.seeds:
                    traffic.flows(topology, capacity_bps=uplink_bps(topology), seed=seed)
            except TrafficError as error:
                raise GridError(f"workloads.{name}.{error}") from None
