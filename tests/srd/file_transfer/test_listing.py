"""srd.file_transfer.listing: what is sent of a tree, in which order, and what is not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from srd.file_transfer.listing import Listing, list_all

SECRET = b"s" * 32


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "b/deep").mkdir(parents=True)
    (top / "empty").mkdir()
    for name in ("b/deep/x", "b/y", "a", "c"):
        (top / name).write_bytes(name.encode())
    return top


def names(listing: Listing) -> list[str]:
    return [file.name for file in listing.files]


def test_list_all__files_by_name_and_directories_behind_what_they_contain(tree: Path) -> None:
    listing = list_all([tree], secret=SECRET)
    files = ["top/a", "top/b/deep/x", "top/b/y", "top/c"]
    assert names(listing) == [*files, "top/empty", "top/b/deep", "top/b", "top"]
    assert [file.is_directory for file in listing.files] == [False] * 4 + [True] * 4
    assert (listing.skipped, listing.failed) == ([], [])
    assert [file.size for file in listing.files[:4]] == [1, 8, 3, 1]


def test_list_all__several_arguments(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "a")
    listing = list_all([tree / "c", tree / "b/deep", tree / "link"], secret=SECRET)
    assert names(listing) == ["c", "deep/x", "link", "deep"]
    assert listing.skipped == []


def test_list_all__this_directory_has_a_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "b")
    assert names(list_all([Path()], secret=SECRET)) == ["b/deep/x", "b/y", "b/deep", "b"]
    assert names(list_all([Path("..")], secret=SECRET))[0] == "top/a"


def test_list_all__links_pipes_and_sockets_are_skipped(tree: Path) -> None:
    (tree / "link").symlink_to("/etc")
    (tree / "gone").symlink_to("missing")
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "socket"))
        listing = list_all([tree], secret=SECRET)
    skipped = {path.name: kind for path, kind in listing.skipped}
    assert skipped == {"link": "a link", "gone": "a link", "pipe": "a pipe", "socket": "a socket"}
    assert listing.failed == []
    assert len(listing.files) == 8


def test_list_all__names_that_cannot_be_offered_are_failures(tree: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tree) + b"/\xff"))
    path.touch()
    listing = list_all([tree, tree / "missing"], secret=SECRET)
    assert listing.failed == [
        (path, "a name that is no text"),
        (tree / "missing", "cannot be read: No such file or directory"),
    ]


def test_list_all__ids_stay_and_are_of_the_file_and_the_user(tree: Path) -> None:
    def ids(secret: bytes = SECRET) -> list[str]:
        return [file.transfer for file in list_all([tree], secret=secret).files[:4]]

    first = ids()
    assert len(set(first)) == 4
    assert ids() == first
    assert not set(ids(b"t" * 32)) & set(first)
    (tree / "a").write_bytes(b"changed")
    assert [one == other for one, other in zip(first, ids(), strict=True)] == [False, True, True, True]
