"""A carrier of `srd perf`'s sweep by a card's queue pairs: what `efa-pingpong` and `efa-bw` measure.

Workload, clock, comparisons and figures are those of `srd.perf.sweep`. Here are a queue pair that one thread at a time
uses (`end`), what client and server do with it for a size (`carrier`), and how the two meet over TCP (`session`).
"""
