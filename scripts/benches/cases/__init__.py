"""The cases of `scripts/bench`, one module per case; registry.py lists them."""
