"""The card's side of an EFA device.

`function` is a virtual function of kind EFA. `user_context` is one program's connection, `admin_commands` what it may
ask for; `queue_pair`, `send_queue`, `recv_queue` and `completion_queue` the rings; `requester` and `responder` the two
directions of the data path; `poller` when doorbells are looked at.
"""
