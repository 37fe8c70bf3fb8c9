"""Protection domains."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from nitro_emu.efa import verbs
from pyverbs.base import PyverbsCM, translated
from pyverbs.pyverbs_error import PyverbsRDMAError

if TYPE_CHECKING:
    from pyverbs.device import Context


class PD(PyverbsCM):
    """A protection domain of a device."""

    def __init__(self, creator: Context) -> None:
        with translated("Failed to allocate PD"):
            self.pd = verbs.ProtectionDomain(creator.context)
        self.ctx = creator
        super().__init__(self.pd, creator)

    def advise_mr(self, advise: int, flags: int, sg_list: object, num_sge: int) -> None:  # noqa: ARG002
        """Prefetch: a card maps all memory at once, and has nothing to do."""
        raise PyverbsRDMAError("Failed to advise MR", errno.EOPNOTSUPP)
