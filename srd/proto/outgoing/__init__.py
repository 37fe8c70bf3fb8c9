"""Messages on their way: their packets, the PSNs that these have, what is in flight, the credit that they take."""
