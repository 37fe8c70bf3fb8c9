"""The card: virtual functions with admin queues and rings, over SRD endpoints of their own.

`card` has the virtual functions. Each has an engine and its peers (`vf_endpoint`), and is of one of two kinds:
`efa_function`, an RDMA device, or `express_function`, a network interface. Of the former `user_context` is one
program's connection, `admin_commands` what it may ask for; `queue_pair`, `send_queue`, `recv_queue` and
`completion_queue` the rings; `requester` and `responder` the two directions of the data path; `remote` the peers behind
address handles; `poller` when doorbells are looked at.
"""

from nitro_emu.device.card import Card

__all__ = ["Card"]
