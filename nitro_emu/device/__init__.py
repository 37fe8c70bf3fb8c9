"""The card: virtual functions with admin queues and rings, over SRD endpoints of their own.

`card` has the virtual functions; `virtual_function` one tenant's engine and tables; `user_context` one program's
connection and its admin commands; `queue_pair`, `send_queue`, `recv_queue` and `completion_queue` the rings;
`requester` and `responder` the two directions of the data path; `remote` the peers behind address handles; `poller`
when doorbells are looked at.
"""

from nitro_emu.device.card import Card

__all__ = ["Card"]
