"""What the cases of `scripts/bench` do; scenarios.py and registry.py list them."""
