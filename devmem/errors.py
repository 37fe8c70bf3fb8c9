"""The error tree of the `devmem` package.

DevmemError       anything this package raises on purpose
├── RegionError   memory that cannot be had, or is still in use
└── PoolError     a lease that does not exist
"""

from __future__ import annotations


class DevmemError(Exception):
    """Root of the errors of this package."""


class RegionError(DevmemError):
    """Memory that cannot be had, or is still in use."""


class PoolError(DevmemError):
    """A lease that does not exist: returned twice, or never taken."""
