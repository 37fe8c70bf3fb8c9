"""netns.topology.file: all forms of a file, and one-line errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from netns.errors import ShapeError, TopologyError
from netns.faults.schedule import read_schedule
from netns.netem.shape import Shape
from netns.topology.clos import ClosLinks, clos
from netns.topology.file import read_topology
from netns.topology.model import Capture, Link, Switch, Topology, reference

PROJECT = Path(__file__).resolve().parents[3]

EXPLICIT = """
name: demo
mtu: 1500
seed: 7
ipv6: true
ecmp: resilient
hosts: [h1, h2]
switches: {leaf1: leaf, leaf2: leaf, spine1: spine}
links:
  - {a: h1, b: leaf1}
  - {a: h2, b: leaf2}
  - {a: leaf1, b: spine1, shape: {delay: 1ms, loss: 1%}}
  - {a: leaf2, b: spine1, shape_ab: {rate: 100mbit, limit: 5}, shape_ba: {rate: 1gbit, delay: 2ms}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "demo.yaml"


def test_read_topology__example_is_the_reference() -> None:
    assert read_topology(PROJECT / "netns" / "examples" / "reference.yaml") == reference()


def test_read_topology__examples_of_the_documentation(file: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (PROJECT / "docs" / "fabric.md").read_text(), re.DOTALL)
    names = []
    for block in blocks:
        file.write_text(block)
        if block.startswith("events:"):
            assert read_schedule(file, reference())
        else:
            names.append(read_topology(file).name)
    assert names == ["demo", "cluster", "uneven", "demo", "demo"]


def test_read_topology__explicit(file: Path) -> None:
    file.write_text(EXPLICIT)
    both = Shape(delay_us=1000, loss_percent=1)
    assert read_topology(file) == Topology(
        name="demo",
        mtu=1500,
        seed=7,
        ipv6=True,
        ecmp="resilient",
        hosts=("h1", "h2"),
        switches=(Switch("leaf1", "leaf"), Switch("leaf2", "leaf"), Switch("spine1", "spine")),
        links=(
            Link("h1", "leaf1"),
            Link("h2", "leaf2"),
            Link("leaf1", "spine1", both, both),
            Link(
                "leaf2",
                "spine1",
                Shape(rate_bps=100_000_000, limit_packets=5),
                # 250 kB in flight and 1 MB of buffer, in packets of 1514 bytes, and one being sent
                Shape(rate_bps=1_000_000_000, delay_us=2000, limit_packets=827),
            ),
        ),
    )


def test_read_topology__name_defaults_to_the_file(file: Path) -> None:
    file.write_text("leaf_spine: {leaves: 1, spines: 1}")
    topology = read_topology(file)
    assert (topology.name, topology.mtu, topology.hosts) == ("demo", 9000, ("h1",))
    assert not any(link.shaped for link in topology.links)


FORMS = [
    "leaf_spine: {spines: 1, link: {SHAPE}}",
    "dumbbell: {bottleneck: {SHAPE}}",
    "dumbbell: {bottleneck: {delay: 1ms}, access: {SHAPE}}",
    "clos: {host_link: {SHAPE}, leaf_link: {delay: 2ms}}",
    "clos: {host_link: {delay: 1ms}, leaf_link: {SHAPE}}",
    "clos: {leaf_link: {delay: 2ms}, spine_link: {SHAPE}}",
    "{hosts: [h], switches: {a: leaf, b: spine}, links: [{a: h, b: a}, {a: a, b: b, shape: {SHAPE}}]}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("delay: 0.5ms, rate: 100mbit", {"delay": "20ms"}, "delay: 20ms, rate: 100mbit"),
        ("delay: 20ms, rate: 100mbit", {"rate": "10mbit", "loss": "1%"}, "delay: 20ms, rate: 10mbit, loss: 1%"),
        ("delay: 20ms", {"rate": "10mbit"}, "delay: 20ms, rate: 10mbit"),
        ("rate: 10mbit", {"rate": "0mbit", "delay": "1ms"}, "delay: 1ms"),
        ("rate: 10mbit, limit: 7", {"delay": "20ms"}, "delay: 20ms, rate: 10mbit, limit: 7"),
        ("rate: 10mbit", {"limit": 7, "delay": "20ms"}, "delay: 20ms, rate: 10mbit, limit: 7"),
    ],
)
def test_changed__is_as_a_file_with_the_changes(
    file: Path, form: str, before: str, changes: dict[str, Any], after: str
) -> None:
    """Of each link: a limit that the file derives is derived anew, one that was given stays."""
    file.write_text(form.replace("SHAPE", before))
    was = read_topology(file)
    file.write_text(form.replace("SHAPE", after))
    for old, new in zip(was.links, read_topology(file).links, strict=True):
        for shape, wanted in ((old.shape_ab, new.shape_ab), (old.shape_ba, new.shape_ba)):
            if shape is not None and shape != wanted:
                assert shape.changed(changes) == wanted
                again = Shape.from_dict(json.loads(json.dumps(shape.to_dict())))
                assert again.changed(changes) == wanted, "a lab's record and its relay have it as JSON"


def test_changed__paths_follow(file: Path) -> None:
    file.write_text("leaf_spine: {spines: 2, link: {delay: 0.5ms, rate: 250mbit}, paths: {spine2: {delay: 5ms}}}")
    first, second = (read_topology(file).link(f"leaf1-spine{number}").shape_ab for number in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.limit_packets, second.limit_packets) == (10, 88)
    assert first.derived == second.derived == ("limit",)


def test_read_topology__clos(file: Path) -> None:
    file.write_text(
        "clos: {blocks: 2, leaves_per_block: 1, hosts_per_leaf: [3, 1], spines: 1, aggregations_per_block: 1,\n"
        "       host_link: {delay: 50us, rate: 100mbit}, spine_link: {rate: 1gbit, limit: 1000}}"
    )
    host, spine = Shape(delay_us=50, rate_bps=100_000_000), Shape(rate_bps=1_000_000_000, limit_packets=1000)
    wanted = clos(
        blocks=2,
        leaves_per_block=1,
        hosts_per_leaf=(3, 1),
        spines=1,
        aggregations_per_block=1,
        links=ClosLinks(host=host).with_room(mtu=9000),
        name="demo",
    )
    read = read_topology(file)
    assert read.link("h4-leaf2") == wanted.link("h4-leaf2")
    assert read.link("agg2-spine1").shape_ba == spine, "an explicit limit wins even if it is netem's default"
    assert (read.hosts, read.switches) == (wanted.hosts, wanted.switches)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no topology"),
        ("- a", "holds no topology"),
        ("{}", "hosts: missing; give leaf_spine, clos, dumbbell, or hosts, switches and links"),
        ("hosts: [h1]", "switches: missing"),
        ("mtu: 9000\nmtu: 1500", "line 2: mtu is given twice"),
        ("leaf_spin: {}", "leaf_spin: no such key; the known ones here are name, mtu, seed, leaf_spine, clos, "),
        ("leaf_spine: {spnes: 4}", "leaf_spine.spnes: no such key; the known ones here are leaves, spines, "),
        ("leaf_spine: {spines: four}", "leaf_spine.spines: 'four' should be a valid integer"),
        ("leaf_spine: {spines: 0}", "leaf_spine.spines: 0 should be greater than or equal to 1"),
        (
            "leaf_spine: {leaves: 254, hosts_per_leaf: 254}",
            "65532 links; a topology has at most 32768 links, and a node",
        ),
        (
            "leaf_spine: {}\ncaptures: [{link: leaf1-spine1, file: ''}]",
            "captures[0].file: '' String should have at least 1",
        ),
        ("ipv6: 1\nleaf_spine: {}", "ipv6: 1 should be a valid boolean"),
        ("ecmp: fast\nleaf_spine: {}", "ecmp: 'fast' should be 'hash-threshold' or 'resilient'"),
        ("leaf_spine: {link: {loss: 120%}}", "leaf_spine.link.loss: 120 % is not between 0 % and 100 %"),
        ("leaf_spine: {link: {delay: 3}}", "leaf_spine.link.delay: 3 is not a time"),
        ("leaf_spine: {}\nhosts: [h1]", "hosts: stands beside leaf_spine"),
        ("leaf_spine: {}\nclos: {}", "clos: stands beside leaf_spine"),
        ("clos: {}\nlinks: []", "links: stands beside clos, which names its own nodes; keep one of the two"),
        ("clos: {spins: 4}", "clos.spins: no such key; the known ones here are blocks, leaves_per_block, "),
        ("clos: {hosts_per_leaf: x}", "hosts_per_leaf: 'x' is not an integer between 1 and 254"),
        (
            "leaf_spine: {leaves: 3, hosts_per_leaf: [2, 1]}",
            "hosts_per_leaf: 2 numbers for 3 leaves; give one for each",
        ),
        ("leaf_spine: {leaves: 3, hosts_per_leaf: [2, 1, 0]}", "hosts_per_leaf[2]: 0 is not an integer between 1 and"),
        ("leaf_spine: {hosts_per_leaf: [2, x]}", "hosts_per_leaf[1]: 'x' is not an integer between 1 and 254"),
        ("clos: {leaf_link: {delay: 3}}", "clos.leaf_link.delay: 3 is not a time"),
        ("switches: {leaf1: core}", "switches.leaf1: 'core' should be 'leaf', 'aggregation' or 'spine'"),
        (EXPLICIT + "  - {a: h1}", "links[4].b: missing"),
        (EXPLICIT + "  - {a: h1, b: h2, shap: {}}", "links[4].shap: no such key; the known ones here are a, b, shape"),
        (EXPLICIT + "  - {a: leaf1, b: leaf2, shape: {}, shape_ba: {}}", "links[4].shape_ba: stands beside shape"),
        (EXPLICIT + "  - {a: leaf1, b: leaf2, shape_ab: {rate: 1x}}", "links[4].shape_ab.rate: 1x is not a rate"),
    ],
)
def test_read_topology__bad_flow(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises((TopologyError, ShapeError)) as caught:
        read_topology(file)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "\n" not in str(caught.value)


def test_read_topology__unreadable(file: Path, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=f"^{file}: No such file or directory$"):
        read_topology(file)
    with pytest.raises(TopologyError, match=r"Is a directory$"):
        read_topology(tmp_path)


def read(path: Path, text: str) -> Topology:
    path.write_text(text)
    return read_topology(path)


def test_read_topology__dumbbell(file: Path) -> None:
    made = read(file, "dumbbell: {hosts_per_side: 2, bottleneck: {delay: 10ms, rate: 50mbit}, access: {rate: 1gbit}}")
    assert made.hosts == ("h1", "h2", "h3", "h4")
    bottleneck = made.link("left-right").shape_ab
    assert bottleneck is not None
    assert (bottleneck.rate_bps, bottleneck.limit_packets) == (50_000_000, 36), "room for a BDP"


def test_read_topology__paths_that_differ(file: Path) -> None:
    made = read(file, "leaf_spine: {link: {delay: 1ms}, paths: {spine2: {delay: 5ms}}}")
    assert made.link("leaf1-spine2").shape_ab == Shape(delay_us=5000)
    assert made.link("leaf1-spine1").shape_ab == Shape(delay_us=1000)


def test_read_topology__files_of_shapes_lie_beside_it(file: Path) -> None:
    (file.parent / "up.trace").write_text("1\n2\n")
    shape = read(file, "leaf_spine: {link: {trace: up.trace}}").link("leaf1-spine1").shape_ab
    assert shape is not None
    assert shape.trace == str(file.parent / "up.trace")


def test_read_topology__captures_lie_beside_it(file: Path) -> None:
    made = read(file, "leaf_spine: {}\ncaptures: [{link: leaf1-spine1, file: up.pcapng}]")
    assert made.captures == (Capture("leaf1-spine1", str(file.parent / "up.pcapng")),)
    with pytest.raises(TopologyError, match=r"link a-b: no such link"):
        read(file, "leaf_spine: {}\ncaptures: [{link: a-b, file: x}]")
    with pytest.raises(TopologyError, match=r"captures\[0\].fil: no such key; the known ones here are link, file, ov"):
        read(file, "leaf_spine: {}\ncaptures: [{link: a-b, file: x, fil: x}]")


def test_leaf_spine__a_number_of_hosts_for_each_leaf(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("leaf_spine: {leaves: 3, spines: 1, hosts_per_leaf: [2, 1, 1]}")
    topology = read_topology(file)
    assert [topology.switch_of(host) for host in topology.hosts] == ["leaf1", "leaf1", "leaf2", "leaf3"]
