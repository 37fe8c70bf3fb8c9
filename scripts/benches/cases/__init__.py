"""The cases of `scripts/bench`, a module each; registry.py lists them."""
