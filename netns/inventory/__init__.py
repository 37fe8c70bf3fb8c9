"""Nodes as schedulers see them: layers, quantities, files of EC2 and Kubernetes."""
