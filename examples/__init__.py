"""Programs that are not ours, run over what is."""
