"""The error tree of the `devmem` package.

DevmemError            anything this package raises on purpose
├── RegionError        memory that cannot be had, or is still in use
│   └── CudaError      ... by a CUDA device (module `cuda`)
├── RegistrationError  access rights that cannot be, or a registration that does not exist
└── PoolError          a lease that does not exist
"""

from __future__ import annotations


class DevmemError(Exception):
    """Root of the errors of this package."""


class RegionError(DevmemError):
    """Memory that cannot be had, or is still in use."""


class CudaError(RegionError):
    """The CUDA driver is not there, or refuses."""


class RegistrationError(DevmemError):
    """Access rights that cannot be, or a registration that does not exist (any more)."""


class PoolError(DevmemError):
    """A lease that does not exist: returned twice, or never taken."""
