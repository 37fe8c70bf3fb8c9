"""Device memory: regions that payloads land in without a copy, and the pool that manages their chunks.

It follows Device Memory TCP (Documentation/networking/devmem.rst) in user space. A region is memory that other
processes can map. The kernel writes received payload directly to it. The application gets leases on fragments and
returns them by token. `Region` is the memory, `Pool` its chunks, `Tokens` what fragments are returned by, `Registry`
what peers may read and write; `uapi` has the kernel's layouts, `cuda` is optional.
"""

from devmem.errors import CudaError, DevmemError, PoolError, RegionError, RegistrationError
from devmem.pool import Pool
from devmem.region import Region
from devmem.registry import Access, Registration, Registry
from devmem.tokens import Frag, Tokens, cmsgs, ranges

__all__ = [
    "Access",
    "CudaError",
    "DevmemError",
    "Frag",
    "Pool",
    "PoolError",
    "Region",
    "RegionError",
    "Registration",
    "RegistrationError",
    "Registry",
    "Tokens",
    "cmsgs",
    "ranges",
]
