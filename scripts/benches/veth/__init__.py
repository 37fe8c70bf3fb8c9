"""What runs in the benches between two namespaces: what srd perf does not measure, iperf3, and a UDP probe."""
