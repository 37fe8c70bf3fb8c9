"""What benches, demo and profiles share: processes and their events, veth pairs, kernel counters, the environment."""
