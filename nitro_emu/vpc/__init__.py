"""Virtual private clouds: the mapping of private addresses to cards, security groups, and the control plane."""
