"""The paths towards one peer: their state, their round trips, the choice of one for each burst."""
