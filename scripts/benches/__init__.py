"""`scripts/bench`: cases/ has what is measured, scenarios.py (virtual time) and registry.py (all) the tables of it."""
