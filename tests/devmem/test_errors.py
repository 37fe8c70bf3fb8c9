from __future__ import annotations

import pytest

from devmem import errors
from devmem.errors import DevmemError, PoolError, RegionError


@pytest.mark.parametrize("kind", [PoolError, RegionError])
def test_errors__have_one_root_and_are_in_the_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, DevmemError)
    assert kind.__name__ in (errors.__doc__ or "")
