"""`scripts/bench`: cases/ has a module for each, registry.py lists them, simulation.py runs cores in virtual time."""
