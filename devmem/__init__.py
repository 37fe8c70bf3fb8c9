"""Device memory: regions that payloads land in without a copy, and the pool that hands out pieces of them.

Device Memory TCP's idea (Documentation/networking/devmem.rst) in user space: a region is memory that another process
can map; received payload lies in it from the moment the kernel has it; the application is given leases on pieces and
returns them. Today: `Region`, the receive `Pool`, and the `Registry` of what peers may read and write. To come: tokens,
DLPack.
"""

from devmem.errors import DevmemError, PoolError, RegionError, RegistrationError
from devmem.pool import Pool
from devmem.region import Region
from devmem.registry import Access, Registration, Registry

__all__ = [
    "Access",
    "DevmemError",
    "Pool",
    "PoolError",
    "Region",
    "RegionError",
    "Registration",
    "RegistrationError",
    "Registry",
]
