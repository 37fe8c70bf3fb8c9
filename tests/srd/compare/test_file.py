"""Grids from YAML: what is read, and each mistake in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.compare.errors import GridError
from srd.compare.file import NAMES, grid_file, read_grid
from srd.compare.grid import TRANSPORTS, WantedFigure
from srd.compare.traffic import AllToAll, Bulk, File, Incast, Rpc

WORKLOADS = "workloads: {bulk: {bulk: {size: 1M}}}\n"
LEAST = "fabrics: {two: reference}\n" + WORKLOADS
COPY = "fabrics: {{two: reference}}\nworkloads: {{copy: {{file: {}}}}}\n"
WANTED = LEAST.replace("{", "{{").replace("}", "}}") + "wanted: [{}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "grid.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_built_in__can_be_read(name: str) -> None:
    grid = read_grid(grid_file(name))
    assert grid.name == name
    assert grid.transports == tuple(TRANSPORTS)


def test_least__has_defaults(file: Path) -> None:
    file.write_text(LEAST)
    grid = read_grid(file)
    assert (grid.name, grid.transports, grid.seeds, grid.timeout_s) == ("grid", tuple(TRANSPORTS), (1,), 30.0)
    assert list(grid.conditions) == ["clean"]
    assert grid.fabrics["two"].hosts == ("h1", "h2")


def test_everything__is_read(file: Path) -> None:
    (file.parent / "own.yaml").write_text("leaf_spine: {leaves: 3, hosts_per_leaf: 2, link: {rate: 10mbit}}")
    file.write_text("""
name: all
fabrics:
  own: own.yaml
  written: {leaf_spine: {hosts_per_leaf: 2, link: {rate: 10mbit}}}
transports: [mptcp, srd]
conditions:
  loss: {shape: {loss: 1%, delay: 1ms}}
  plan: {events: [{at: 2s, repair: leaf1-spine1}, {at: 1s, fail: spine1-leaf1}]}
  dead: {busiest_link_fails_at: 40%}
workloads:
  bulk: {bulk: {size: 64M}}
  incast: {incast: {senders: 2, size: 1K}}
  mesh: {all_to_all: {size: 1}}
  search: {rpc: {sizes: web-search, load: 30%, duration: 100ms, scale: 0.5}}
seeds: [5, 6]
timeout: 500ms
""")
    grid = read_grid(file)
    assert {name: len(topology.hosts) for name, topology in grid.fabrics.items()} == {"own": 6, "written": 4}
    assert grid.transports == ("mptcp", "srd")
    assert [event.at_us for event in grid.conditions["plan"].events] == [1e6, 2e6]
    assert grid.conditions["dead"].busiest_link_fails_at == 0.4
    assert list(grid.workloads.values()) == [
        Bulk(64 << 20),
        Incast(2, 1024),
        AllToAll(1),
        Rpc("web-search", 0.3, 0.1, 0.5),
    ]
    assert (grid.seeds, grid.timeout_s) == ((5, 6), 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no grid; give fabrics and workloads"),
        ("fabrics: {two: reference}\n", "workloads: missing"),
        (LEAST + "transports: [srd, quic]\n", "transports: 'quic' is unknown; use srd, cubic, bbr, mptcp"),
        (LEAST + "transports: []\n", "transports: [] List should have at least 1 item"),
        (LEAST + "speed: 3\n", "speed: no such key; the known ones here are name, fabrics, transports"),
        (LEAST + "seeds: 0\n", "seeds: 0 is no number between 1 and 1000, nor a list of seeds"),
        (LEAST + "seeds: [-1]\n", "seeds: -1 is no number between 0 and 4294967295"),
        (LEAST + "seeds: none\n", "seeds: 'none' is no number between 1 and 1000, nor a list of seeds"),
        (LEAST + "seeds: [1, a]\n", "seeds: 'a' is no number between 0 and 4294967295"),
        (LEAST + "timeout: 5\n", "timeout: 5 is not a time: give a unit"),
        (LEAST + "timeout: 2h\n", "timeout: 2h is not between 0.1s and 3600s"),
        (LEAST + "conditions: {bad: {shape: {loss: 2x}}}\n", "conditions.bad.shape.loss: "),
        (LEAST + "conditions: {bad: {busiest_link_fails_at: 140%}}\n", "140% is not between 0% and 100%"),
        (
            LEAST + "conditions: {bad: {los: 1%}}\n",
            "conditions.bad.los: no such key; the known ones here are shape, events",
        ),
        (
            LEAST + "conditions: {bad: {events: [{at: 1s}]}}\n",
            "conditions.bad.events[0]: has none of fail, set, repair",
        ),
        (LEAST + "conditions: {bad: {events: [{fail: spine9}]}}\n", "conditions.bad.events[0].fail: spine9: neither"),
        ("fabrics: {two: nowhere}\n" + WORKLOADS, "fabrics.two: nowhere: No such file"),
        ("fabrics: {two: {leaf_spine: {spines: 0}}}\n" + WORKLOADS, "fabrics.two: leaf_spine.spines: 0 should be"),
        ("fabrics: {}\n" + WORKLOADS, "fabrics: {} Dictionary should have at least 1 item"),
        ("fabrics: {two: reference}\nworkloads: {b: {}}\n", "workloads.b: has none of bulk, file, incast"),
        (
            "fabrics: {two: reference}\nworkloads: {b: {bulk: {size: 0}}}\n",
            "workloads.b.bulk.size: 0 is not between 1 and",
        ),
        (
            "fabrics: {two: reference}\nworkloads: {b: {bulk: {size: big}}}\n",
            "workloads.b.bulk.size: 'big' is not a number",
        ),
        ("fabrics: {two: reference}\nworkloads: {b: {bulk: {sise: 1}}}\n", "workloads.b.bulk.size: missing"),
        (
            "fabrics: {two: reference}\nworkloads: {b: {incast: {senders: 2, size: 1}}}\n",
            "workloads.b.incast.senders: 2 senders, but reference has 1 hosts on other leaves than h2; give fewer",
        ),
        (COPY.format("{}"), "workloads.copy.file: give size or path, one of them"),
        (COPY.format("{size: 1M, path: x}"), "workloads.copy.file: give size or path, one of them"),
        (COPY.format("{path: nowhere}"), "nowhere: No such file"),
        (COPY.format("{path: /dev/null}"), "workloads.copy.file.path: /dev/null: no regular file"),
        (COPY.format("{size: 2048G}"), "workloads.copy.file.size: 2048G is not between 1 and"),
        (LEAST + "must_complete: [quic]\n", "must_complete: 'quic' is unknown; use srd, cubic, bbr, mptcp"),
        (WANTED.format("{transport: quic, figure: goodput, least: 1}"), "wanted[0].transport: 'quic' is unknown"),
        (
            WANTED.format("{transport: srd, figure: speed, least: 1}"),
            "wanted[0].figure: 'speed' is unknown; use goodput",
        ),
        (WANTED.format("{transport: srd, figure: goodput, over: quic, least: 1}"), "wanted[0].over: 'quic' is unknown"),
        (WANTED.format("{transport: srd, figure: goodput}"), "wanted[0]: give least or most, one of them"),
        (WANTED.format("{transport: srd, figure: goodput, least: fast}"), "wanted[0].least: 'fast' is not a number"),
        (
            WANTED.format("{transport: srd, figure: goodput, over: cubic, least: much}"),
            "wanted[0].least: much is no number",
        ),
        (
            WANTED.format("{transport: srd, figure: sent_again, most: 3%, conditions: [fog]}"),
            "wanted[0].conditions: 'fog' is unknown; use clean",
        ),
        (WANTED.format("{transport: srd, figur: goodput}"), "wanted[0].figure: missing"),
        (
            "fabrics: {two: reference}\nworkloads: {b: {rpc: {sizes: web, load: 1%, duration: 1s}}}\n",
            "workloads.b.rpc.sizes: 'web' is unknown; use web-search or data-mining",
        ),
        (
            "fabrics: {two: {leaf_spine: {}}}\nworkloads: {b: {rpc: {sizes: web-search, load: 1%, duration: 1s}}}\n",
            "workloads.b.rpc.load: fabric two has links without a rate; give them one, as in link: {rate: 250mbit}",
        ),
    ],
)
def test_mistakes__are_one_line_with_file_key_and_value(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(GridError) as caught:
        read_grid(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file__the_users_or_random_bytes(file: Path) -> None:
    file.write_text(COPY.format("{size: 2M}"))
    assert read_grid(file).workloads == {"copy": File(2 << 20)}
    (file.parent / "own.iso").write_bytes(b"abc")
    file.write_text(COPY.format("{path: own.iso}"))
    assert read_grid(file).workloads == {"copy": File(3, str(file.parent / "own.iso"))}
    (file.parent / "own.iso").write_bytes(b"")
    with pytest.raises(GridError, match=r"workloads\.copy\.file\.path: .*own\.iso: is empty"):
        read_grid(file)


def test_wanted__is_read(file: Path) -> None:
    grid = read_grid(grid_file("demo"))
    assert grid.wanted == (
        WantedFigure("srd", "goodput", over="mptcp", least=1.0),
        WantedFigure("srd", "sent_again", most=0.03, conditions=("loss",)),
    )
    assert grid.must_complete == ("srd",)
    file.write_text(WANTED.format("{transport: srd, figure: goodput, least: 750mbit}"))
    assert read_grid(file).wanted == (WantedFigure("srd", "goodput", least=750e6),)


def test_too_many_cells__are_refused(file: Path) -> None:
    many = ", ".join(f"c{number}: {{}}" for number in range(300))
    file.write_text(LEAST + f"conditions: {{{many}}}\nseeds: 1000\n")
    with pytest.raises(GridError, match="has 1200000 cells, and at most 100000"):
        read_grid(file)


def test_no_file__names_it() -> None:
    with pytest.raises(GridError, match=r"nowhere\.yaml: No such file"):
        read_grid(grid_file("nowhere.yaml"))
