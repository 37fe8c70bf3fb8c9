"""Topologies from YAML files, in four forms.

A leaf-spine, described by its size:

    name: demo            # optional: the file's name without .yaml
    mtu: 9000             # optional
    seed: 1               # optional
    leaf_spine:
      leaves: 2
      spines: 4
      hosts_per_leaf: 1                        # or a number for each leaf: [12, 12, 1]
      link: {delay: 0.5ms, rate: 250mbit}      # every leaf-spine link, both directions; optional
      host_link: {delay: 50us, rate: 1gbit}    # from leaf to host; optional

A three-tier Clos (netns/topology/clos.py) by its size:

    clos:
      blocks: 4
      leaves_per_block: 2
      hosts_per_leaf: 2                 # or a number for each leaf: [4, 0, 2, 2, 2, 2, 2, 2]
      aggregations_per_block: 2
      spines: 2
      host_link: {delay: 50us, rate: 100mbit}      # from leaf to host; each of the three is optional
      leaf_link: {delay: 0.5ms, rate: 100mbit}     # between leaf and aggregation switch, each way
      spine_link: {delay: 2ms, rate: 25mbit}       # between aggregation switch and spine, each way

Two switches with one link between them, hosts h1, h2 ... on the one and as many more on the other:

    dumbbell:
      hosts_per_side: 2
      bottleneck: {delay: 10ms, rate: 50mbit}      # each way
      access: {rate: 1gbit}                        # from switch to host; optional

In a leaf-spine, `paths` defines differences on the links of a spine (netns/topology/dumbbell.py):

    leaf_spine: {spines: 4, link: {delay: 0.5ms, rate: 250mbit}, paths: {spine2: {rate: 25mbit}, spine4: {delay: 5ms}}}

Or every node and link:

    hosts: [h1, h2]
    switches: {leaf1: leaf, leaf2: leaf, spine1: spine}
    links:
      - {a: h1, b: leaf1}
      - {a: h2, b: leaf2}
      - {a: leaf1, b: spine1, shape: {delay: 1ms, loss: 1%}}                     # both directions
      - {a: leaf2, b: spine1, shape_ab: {rate: 100mbit}, shape_ba: {rate: 1gbit}} # each its own

Each form may add links to capture while the lab is up (netns/observe/capture.py; files are relative to the topology
file), IPv6 beside IPv4 (netns/topology/addressing.py), and how routers choose among equal paths (`hash-threshold` or
`resilient`):

    captures: [{link: leaf1-spine1, file: up.pcapng}]      # a new file; overwrite: true replaces an earlier capture
    ipv6: true
    ecmp: resilient

Shapes are in tc's notation (netns/netem/tc_parse.py). A shape with a rate and no limit gets the limit of
`topology.model.with_buffer`, in a Clos that of `clos.ClosLinks.with_room`; it follows later changes of delay and rate.

Every mistake is one line with file, key and value: TopologyError, or ShapeError for a shape. Only the first mistake is
reported. A duplicate key is a mistake, too, which PyYAML alone would not detect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from netns.base.naming import named
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import ShapeError, TopologyError
from netns.netem.shape import Shape
from netns.topology.clos import ClosLinks, clos
from netns.topology.dumbbell import dumbbell, with_paths
from netns.topology.model import (
    MAX_MTU,
    MIN_MTU,
    Capture,
    Ecmp,
    Link,
    Switch,
    Tier,
    Topology,
    check_range,
    fully_meshed,
    with_buffer,
)

FORMS: Final = "leaf_spine, clos, dumbbell, or hosts, switches and links"
WANTED: Final = f"holds no topology; give {FORMS}"

ShapeFields = dict[str, Any]
Count = Annotated[int, Field(ge=1, le=254)]


class _LeafSpine(Strict):
    leaves: Count = 2
    spines: Count = 4
    hosts_per_leaf: Any = 1  # as of a Clos, below
    link: ShapeFields | None = None
    host_link: ShapeFields | None = None
    paths: dict[str, ShapeFields] | None = None


class _Dumbbell(Strict):
    hosts_per_side: Count = 1
    bottleneck: ShapeFields
    access: ShapeFields | None = None


class _Clos(Strict):
    blocks: Count = 2
    leaves_per_block: Count = 2
    hosts_per_leaf: Any = 4  # a number or a list: `clos` checks it, as pydantic's messages for unions are unclear
    aggregations_per_block: Count = 2
    spines: Count = 2
    host_link: ShapeFields | None = None
    leaf_link: ShapeFields | None = None
    spine_link: ShapeFields | None = None


class _Link(Strict):
    a: str
    b: str
    shape: ShapeFields | None = None
    shape_ab: ShapeFields | None = None
    shape_ba: ShapeFields | None = None


class _Capture(Strict):
    link: str
    file: str = Field(min_length=1)
    overwrite: bool = False


class _File(Strict):
    name: str | None = None
    mtu: int = 9000
    seed: int = 1
    leaf_spine: _LeafSpine | None = None
    clos: _Clos | None = None
    dumbbell: _Dumbbell | None = None
    hosts: list[str] | None = None
    switches: dict[str, Tier] | None = None
    links: list[_Link] | None = None
    captures: list[_Capture] | None = None
    ipv6: bool = False
    ecmp: Ecmp = "hash-threshold"


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Parses the shapes of one file."""

    base: Path
    """The directory for relative names of tables and traces: the file's own."""

    mtu: int

    def parsed(self, fields: ShapeFields | None, *, at: str) -> Shape | None:
        """Return the shape as written."""
        if fields is None:
            return None
        with named(f"{at}.", ShapeError):
            return Shape.parse(fields, base=self.base)

    def roomy(self, fields: ShapeFields | None, *, at: str) -> Shape | None:
        """Return the shape, with a limit for its rate if it has none."""
        shape = self.parsed(fields, at=at)
        return shape if shape is None or (fields and "limit" in fields) else with_buffer(shape, mtu=self.mtu)


def read_topology(path: Path) -> Topology:
    """Return the topology in a YAML file. Raises TopologyError or ShapeError with file, key, value and remedy."""
    with named(f"{path}: ", TopologyError, ShapeError):
        document = load_mapping(path, error=TopologyError, wanted=WANTED)
        return parse_topology(document, default_name=path.stem, base=path.parent)


def parse_topology(document: Mapping[Any, Any], *, default_name: str, base: Path) -> Topology:
    """Return the topology in a mapping as YAML has it; names of files are relative to `base`.

    Raises TopologyError or ShapeError with key, value and remedy.
    """
    file = validated(_File, document, error=TopologyError)
    captures = tuple(
        Capture(each.link, str((base / each.file).absolute()), each.overwrite) for each in file.captures or ()
    )
    made = _topology(file, default_name=default_name, base=base)
    return replace(made, captures=captures, ipv6=file.ipv6, ecmp=file.ecmp)


def _topology(file: _File, *, default_name: str, base: Path) -> Topology:
    check_range("mtu", file.mtu, low=MIN_MTU, high=MAX_MTU)  # before shapes get limits for packets of this size
    shapes = _Shapes(base=base, mtu=file.mtu)
    name = default_name if file.name is None else file.name
    explicit = {"hosts": file.hosts, "switches": file.switches, "links": file.links}
    forms = {"leaf_spine": file.leaf_spine, "clos": file.clos, "dumbbell": file.dumbbell}
    given = [key for key, value in {**forms, **explicit}.items() if value is not None]
    if given and given[0] in forms and len(given) > 1:
        raise TopologyError(f"{given[1]}: stands beside {given[0]}, which names its own nodes; keep one of the two")
    if file.leaf_spine is not None:
        return _leaf_spine(file.leaf_spine, shapes, name=name, seed=file.seed)
    if file.clos is not None:
        return _clos(file.clos, shapes, name=name, seed=file.seed)
    if file.dumbbell is not None:
        return _dumbbell(file.dumbbell, shapes, name=name, seed=file.seed)
    for key, value in explicit.items():
        if value is None:
            raise TopologyError(f"{key}: missing; give {FORMS}")
    return Topology(
        name=name,
        mtu=file.mtu,
        seed=file.seed,
        hosts=tuple(file.hosts or ()),
        switches=tuple(Switch(switch, tier) for switch, tier in (file.switches or {}).items()),
        links=tuple(_link(link, shapes, at=f"links[{index}]") for index, link in enumerate(file.links or ())),
    )


def _leaf_spine(size: _LeafSpine, shapes: _Shapes, *, name: str, seed: int) -> Topology:
    made = fully_meshed(
        leaves=size.leaves,
        spines=size.spines,
        hosts_per_leaf=size.hosts_per_leaf,
        shape=shapes.roomy(size.link, at="leaf_spine.link"),
        name=name,
        mtu=shapes.mtu,
        seed=seed,
    )
    port, hosts = shapes.roomy(size.host_link, at="leaf_spine.host_link"), frozenset(made.hosts)
    links = tuple(replace(link, shape_ba=port) if link.a in hosts else link for link in made.links)
    made = replace(made, links=links)
    return with_paths(made, size.paths, at="leaf_spine.paths", base=shapes.base) if size.paths else made


def _dumbbell(size: _Dumbbell, shapes: _Shapes, *, name: str, seed: int) -> Topology:
    return dumbbell(
        hosts_per_side=size.hosts_per_side,
        bottleneck=shapes.roomy(size.bottleneck, at="dumbbell.bottleneck") or Shape(),
        access=shapes.roomy(size.access, at="dumbbell.access"),
        name=name,
        mtu=shapes.mtu,
        seed=seed,
    )


def _clos(size: _Clos, shapes: _Shapes, *, name: str, seed: int) -> Topology:
    given = {"host": size.host_link, "leaf": size.leaf_link, "spine": size.spine_link}
    parsed = {kind: shapes.parsed(fields, at=f"clos.{kind}_link") for kind, fields in given.items()}
    keep = [kind for kind, fields in given.items() if fields and "limit" in fields]
    return clos(
        blocks=size.blocks,
        leaves_per_block=size.leaves_per_block,
        hosts_per_leaf=size.hosts_per_leaf,
        aggregations_per_block=size.aggregations_per_block,
        spines=size.spines,
        links=ClosLinks(**parsed).with_room(mtu=shapes.mtu, keep=keep),
        name=name,
        mtu=shapes.mtu,
        seed=seed,
    )


def _link(link: _Link, shapes: _Shapes, *, at: str) -> Link:
    if link.shape is not None:
        for key, value in (("shape_ab", link.shape_ab), ("shape_ba", link.shape_ba)):
            if value is not None:
                raise TopologyError(f"{at}.{key}: stands beside shape, which rules both directions; keep one")
        shape = shapes.roomy(link.shape, at=f"{at}.shape")
        return Link(link.a, link.b, shape, shape)
    return Link(
        link.a,
        link.b,
        shapes.roomy(link.shape_ab, at=f"{at}.shape_ab"),
        shapes.roomy(link.shape_ba, at=f"{at}.shape_ba"),
    )
