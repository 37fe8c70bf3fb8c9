"""What benches and demo-card share: processes and their events, veth pairs, counters, the environment."""
