"""One endpoint and its peers: the order of calls, handshakes, who a packet is from, how one stays open."""
