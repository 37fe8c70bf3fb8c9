"""The card's process: `daemon` starts it, `card` has the virtual functions, `control` answers `nitro-card`.

`config` is the file that it is started with, `trust` its keys, permissions and proofs, `shares` what each virtual
function may have of the process's descriptors, `metrics` its counters for Prometheus.
"""
