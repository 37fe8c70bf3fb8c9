"""The paths to one peer: their state, their round trips, the choice of a path for each burst."""
