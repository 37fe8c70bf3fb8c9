"""A fabric of Linux namespaces: topologies as data, shaped links, ECMP, and the lab that builds them."""
