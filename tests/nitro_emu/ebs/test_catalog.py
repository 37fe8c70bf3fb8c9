"""Which volumes there are, and where their replicas are placed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nitro_emu.ebs.catalog import Catalog, ServerAddress, Volume, new_id, place
from nitro_emu.ebs.errors import VolumeError

SERVERS = [ServerAddress(f"10.0.{rack}.{host}", 7480, f"rack-{rack}") for rack in (1, 2, 3) for host in (1, 2)]


def volume(name: str, replicas: tuple[ServerAddress, ...] = tuple(SERVERS[::2])) -> Volume:
    return Volume(name, new_id(), 1 << 30, b"wrapped", replicas)


def test_volumes_are_kept_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "volumes.db"
    first, second = volume("vol-1"), volume("vol-2", (SERVERS[1],))
    with Catalog(path) as catalog:
        catalog.add(second)
        catalog.add(first)
    with Catalog(path) as catalog:
        assert catalog.volumes() == [first, second]
        assert catalog.volume("vol-2") == second


def test_a_name_is_given_once_and_another_is_not_found(tmp_path: Path) -> None:
    with Catalog(tmp_path / "volumes.db") as catalog:
        catalog.add(volume("vol-1"))
        with pytest.raises(VolumeError, match="there is a volume vol-1 already"):
            catalog.add(volume("vol-1"))
        with pytest.raises(VolumeError, match="there is no volume vol-2; create it: nitro-volume create vol-2"):
            catalog.volume("vol-2")
        assert len(catalog.volumes()) == 1


def test_foreign_files_are_refused_and_kept(tmp_path: Path) -> None:
    text, database = tmp_path / "text", tmp_path / "other.db"
    text.write_text("these are my notes, of more than a few words\n" * 20)
    with sqlite3.connect(database) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for path, reason in ((text, "file is not a database"), (database, "another program's"), (tmp_path, "unable to")):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(VolumeError, match=reason) as caught:
            Catalog(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "--catalog" in str(caught.value)
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_no_two_replicas_are_in_one_domain_and_the_load_is_even() -> None:
    made: list[Volume] = []
    for number in range(20):
        chosen = place(SERVERS, replicas=3, volumes=made)
        assert len({server.domain for server in chosen}) == 3
        made.append(volume(f"vol-{number}", chosen))
    counts = [sum(server in each.replicas for each in made) for server in SERVERS]
    assert counts == [10] * 6


def test_fewer_replicas_than_domains_take_turns() -> None:
    made: list[Volume] = []
    for number in range(6):
        made.append(volume(f"vol-{number}", place(SERVERS, replicas=1, volumes=made)))
    assert {each.replicas[0] for each in made} == set(SERVERS)


def test_too_few_domains_are_an_error() -> None:
    with pytest.raises(VolumeError, match=r"3 replicas need servers in 3 domains, and there are 2 \(rack-1, rack-2\)"):
        place(SERVERS[:4], replicas=3, volumes=())
