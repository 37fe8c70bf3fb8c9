"""What benches, demo-card and profiles share: processes and their events, veth pairs, counters, the environment."""
