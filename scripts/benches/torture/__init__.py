"""Real endpoints under faults of hosts and networks and packets of strangers, with a check of every byte."""
