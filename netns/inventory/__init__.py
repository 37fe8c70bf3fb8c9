"""Nodes as schedulers know them: layers, quantities, EC2's and Kubernetes' files."""
