"""Labs for tests, under unique names, and always removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.lab.lab import Lab
from netns.lab.state import LabDirectory

_numbers = count()


def has_netem() -> bool:
    """Whether the kernel has netem; only root can try."""
    return os.geteuid() == 0 and missing_netem() is None


def unique_name() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def lab_name() -> Iterator[str]:
    """A unique name; a lab that the test leaves under it is removed."""
    name = unique_name()
    yield name
    if LabDirectory(name).read() is not None:
        Lab.find(name).down()


@pytest.fixture
def another_name() -> Callable[[], str]:
    return unique_name
