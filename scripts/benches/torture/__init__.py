"""Real endpoints under host and network faults and attacks, with a check of every byte."""
