"""The lab that the documents' commands and programs run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns.examples import file_named
from netns.lab.lab import Lab
from netns.topology.file import read_topology


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference fabric under a name that no other lab has."""
    text = file_named("reference").read_text()
    path = tmp_path_factory.mktemp("lab") / "reference.yaml"
    path.write_text(text.replace("name: reference", f"name: tg{os.getpid()}"))
    return path


@pytest.fixture
def lab(topology: Path) -> Iterator[Lab]:
    """That fabric, up; a test of its own has all ports of its hosts for itself."""
    with Lab.up(read_topology(topology)) as made:
        yield made
