"""What runs in the benches between two namespaces: worker/ (SRD, TCP ping, QUIC), iperf3, and a windowed UDP probe."""
