"""A backend for `torch.distributed`: `import srd.torch`, then `dist.init_process_group("srd")`.

Collectives of tensors over SRD. One event loop on a thread of its own a process, one endpoint a group, one peer for
each pair of ranks. From the call down:

- `group`: torch's methods; `work`: what they return; `loop`: the thread.
- `collectives`: who sends what to whom; `mesh`: the ranks of a group, and the order of collectives.
- `transfers`: pieces of tensors as messages; `memory`: where tensors lie, and how what arrives is reduced;
  `registered`: tensors that others write to.
- `staging`: tensors of a GPU, in chunks through pinned memory; `device`: the copies.
- `rendezvous`: addresses and a key in torch's store.
"""

from torch.distributed import Backend

from srd.torch.group import NAME, ProcessGroupSRD, create
from srd.torch.group_error import GroupError
from srd.torch.registered import empty

if NAME.upper() not in Backend._plugins:  # noqa: SLF001 - it has no other question
    Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])

__all__ = ["GroupError", "ProcessGroupSRD", "empty"]
