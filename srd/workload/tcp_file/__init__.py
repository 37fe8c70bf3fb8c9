"""One file over kernel TCP or MPTCP: what `srd send` and `srd recv` are compared with in a workload of a file.

    python -m srd.workload.tcp_file receive --listen HOST:PORT --output DIR
    python -m srd.workload.tcp_file send FILE HOST:PORT [--algorithm cubic|bbr] [--mptcp] [--bind ADDRESS]

The two processes print the events of `srd recv --json` and `srd send --json`, one JSON object a line:

    listening {address, port}                               the receiver accepts a connection
    progress  {seconds, bytes}                              about every 50 ms from the first byte on
    received  {bytes, seconds, hash, digest, longest_stall_ms, ...}   verified and in place
    sent      {bytes, seconds, hash, digest, verified, ...}   the receiver has verified every byte
    stopped   {retransmitted_fraction, ...}                 the sender was told to stop, which `srd send` does not say

Exit status: 0 when every byte was verified, 1 otherwise, 2 for wrong usage.
"""
