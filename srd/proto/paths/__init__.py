"""The paths to one peer: their state, their round trips, which packets they lose, the choice of one for each burst."""
