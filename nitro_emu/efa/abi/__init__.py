"""The layouts that the card and its drivers share. No policy, no I/O.

`admin` has the entries of the admin queues, `io` those of the data path's rings, `memory` where things lie in the
shared memory, `gid` addresses, `limits` what a queue may have. All integers are little-endian, as EFA's are.
"""
