"""Device memory: regions that payloads land in without a copy, and the pool that hands out pieces of them.

Device Memory TCP's idea (Documentation/networking/devmem.rst) in user space: a region is memory that another process
can map; received payload lies in it from the moment the kernel has it; the application is given leases on pieces and
returns them: by tokens, or through a refill ring. `Region` is the memory, `Pool` its chunks, `Tokens` and `RefillRing`
the ways back, `Registry` what peers may read and write; `uapi` has the kernel's layouts, `cuda` is optional.
"""

from devmem.errors import CudaError, DevmemError, PoolError, RegionError, RegistrationError
from devmem.pool import Pool
from devmem.refill import RefillRing
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
    "RefillRing",
    "Region",
    "RegionError",
    "Registration",
    "RegistrationError",
    "Registry",
    "Tokens",
    "cmsgs",
    "ranges",
]
