"""pyverbs' interface for devices that a nitro-card emulates.

It has the names, signatures and error numbers of rdma-core's pyverbs, as far as an EFA device needs them, over
`nitro_emu.efa.verbs`. Put the directory above this one on the path to use it; it then stands before an installed one.
"""

from typing import Final

__version__: Final = "65.0"
"""The release of rdma-core whose pyverbs this follows."""
