"""Device memory: regions that payloads land in without a copy, and the pool that hands out pieces of them.

Device Memory TCP's idea (Documentation/networking/devmem.rst) in user space: a region is memory that another process
can map; received payload lies in it from the moment the kernel has it; the application is given leases on pieces and
returns them. Today: `Region` and the receive `Pool`. To come: registrations with keys, tokens, DLPack.
"""

from devmem.errors import DevmemError, PoolError, RegionError
from devmem.pool import Pool
from devmem.region import Region

__all__ = ["DevmemError", "Pool", "PoolError", "Region", "RegionError"]
