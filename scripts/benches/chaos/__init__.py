"""All kinds of faults of networks and hosts at once, by seed, and checks of the protocol's guarantees."""
