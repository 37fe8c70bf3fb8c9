"""What runs in the benches between two namespaces: what srd perf does not measure, and iperf3."""
