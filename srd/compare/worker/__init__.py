"""One host's part of a workload: flows of given sizes at given times, over SRD, or kernel TCP or MPTCP.

    python -m srd.compare.worker --transport srd|cubic|bbr|mptcp --listen ADDRESS [--bind ADDRESS]
                                 [--file FILE --into DIRECTORY --sha256 HEX]

A flow is a number of bytes from one host to another; it is complete when its sender has the receiver's confirmation
that every byte has arrived and is the one that was sent. The same code schedules, verifies and counts for all
transports; only the carrier differs (`srd_carrier.py`, `tcp_carrier.py`). A file is a flow, too: read from FILE at its
sender and written to DIRECTORY at its receiver, which has verified its SHA-256 when it confirms it. SRD's carrier of
files is the code of `srd send` and `srd recv` (`srd_files.py`). A file's connection is opened when the flow begins.

The process is driven by lines of JSON on stdin, and prints lines of JSON (srd/compare/cell.py is who does so):

    listening {port}                                 ->
    <- {flows: [[number, address, port, bytes, at_s] ...], arriving: {number: bytes}}
    ready                                            ->      connected to all receivers, one byte exchanged with each
    <- {start_at}                                            on the clock of time.monotonic(), the same for all hosts
    progress {seconds, bytes}                        ->      what has arrived here, about every 20 ms if it changes
    flow {number, seconds}                           ->      complete; from when it was handed to the transport
    sent                                             ->      all flows of this host are complete
    <- {account}                                             connections stay open until all have accounted
    account {sent, resent, longest_stall_ms, subflows, cpu_s}  ->
    <- end of stdin                                          exit status 0
    failed {reason}                                  ->      instead of any of these, and exit status 1
"""
