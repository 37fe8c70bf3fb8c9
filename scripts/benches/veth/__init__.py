"""What runs in the benches between two namespaces: worker/ (SRD, TCP ping, QUIC), and iperf3."""
