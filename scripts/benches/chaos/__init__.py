"""Everything that networks and hosts do wrong, at once and by seed; and whether the protocol keeps its word."""
