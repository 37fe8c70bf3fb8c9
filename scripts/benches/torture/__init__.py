"""Real endpoints under faults of hosts and networks and packets of attackers, with a check of every byte."""
