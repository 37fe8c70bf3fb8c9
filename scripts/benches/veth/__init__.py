"""Benches on real sockets: two namespaces joined by a veth pair, and what runs in them.

cases/clean, latency, ... ── rounds ── roles (processes) ── worker/ (ours), iperf, windowed_udp, tcp_echo, quic
                               └── wire (the lab) · drops (what this host lost: the run is void)
"""
