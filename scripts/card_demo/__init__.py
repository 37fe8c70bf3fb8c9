"""The demonstration of the card: `run` has the lab, the cards and the tenants."""
