"""EFA, both sides of one ABI.

`abi` has the layouts, `card` what the device does with them, `verbs` and `pyverbs` what a program calls, `perf` the
carrier of `srd perf`'s sweep by queue pairs. `card` and `verbs` share `abi` and nothing else: the card alone checks
what a program writes.
"""
