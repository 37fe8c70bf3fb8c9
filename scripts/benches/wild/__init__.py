"""TCP in virtual time, to compete with on the same links: sender and receiver, and models of Reno, CUBIC and BBR."""
