"""Loss detection: RACK on each path, tail loss probes, timeouts."""
