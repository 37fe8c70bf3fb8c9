"""netns.lab.names: hosts of a lab are found by name in it, and nothing is left."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from netns.lab import names
from netns.lab.lab import Lab
from netns.topology.addressing import addressing
from netns.topology.model import leaf_spine
from tests.programs import run_to_end

SMALL = leaf_spine(spines=1)


def test_hosts_file__has_every_host_in_each_version() -> None:
    topology = replace(SMALL, ipv6=True)
    lines = names.hosts_file(topology).splitlines()
    assert lines[:2] == ["127.0.0.1 localhost", "::1 localhost"]
    assert lines[2:] == [
        f"{addressing(topology, version=version).main[host]} {host}" for version in (4, 6) for host in ("h1", "h2")
    ]


@pytest.mark.root
@pytest.mark.lab(SMALL)
def test_names__of_hosts_in_a_lab(lab: Lab) -> None:
    done = run_to_end(lab.command("h1", ["getent", "hosts", "h2"]))
    assert done.stdout.split() == [lab.address("h2"), "h2"]
    shown = [names.ETC_NETNS / lab.netns(host) for host in lab.topology.hosts]
    assert all(path.exists() for path in shown)
    lab.down()
    assert not any(path.exists() for path in shown)


@pytest.mark.root
def test_names__a_file_of_the_users_own_stays(lab_name: str, tmp_path: Path) -> None:
    own = names.ETC_NETNS / f"{lab_name}-h1" / names.FILE_NAME
    own.parent.mkdir(parents=True)
    own.write_text("192.0.2.1 mine\n")
    try:
        names.add([own.parent.name], directory=tmp_path, topology=SMALL)
        names.remove(own.parent.name, directory=tmp_path)
        assert own.read_text() == "192.0.2.1 mine\n"
    finally:
        own.unlink()
        own.parent.rmdir()


def test_names__where_they_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ETC_NETNS", Path(os.devnull))
    names.add(["small-h1"], directory=tmp_path, topology=SMALL)
    assert "h2" in (tmp_path / names.FILE_NAME).read_text()
    names.remove("small-h1", directory=tmp_path)
