"""The error hierarchy of the `devmem` package.

DevmemError            base class of this package's errors
├── RegionError        memory that cannot be allocated or mapped, or is still in use
│   └── CudaError      ... by a CUDA device (module `cuda`)
├── RegistrationError  invalid access rights, or a registration that does not exist
└── PoolError          a lease that does not exist, or an invalid argument for a pool
"""

from __future__ import annotations


class DevmemError(Exception):
    """Base class of the errors of this package."""


class RegionError(DevmemError):
    """Memory that cannot be allocated or mapped, or is still in use."""


class CudaError(RegionError):
    """The CUDA driver is missing, or returned an error."""


class RegistrationError(DevmemError):
    """Invalid access rights, or a registration that does not exist (any more)."""


class PoolError(DevmemError):
    """A lease that does not exist (returned twice, or never issued), or an invalid argument for a pool."""
