"""What shows or makes packets in other programs: a layer for scapy, a dissector for Wireshark."""
