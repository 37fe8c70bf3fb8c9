"""Benches on real sockets: two namespaces joined by a veth pair, and what runs in them.

cases/clean, latency, ... ── rounds ── client_server (processes) ── worker/ (SRD, TCP ping, QUIC), iperf, windowed_udp
                               └── veth_pair (the lab) · drops (packets that this host lost; they invalidate the run)
"""
