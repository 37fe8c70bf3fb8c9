"""Unmodified programs over `srd tunnel`, or over any other address: each example runs one, and checks its result.

    python3 -m examples.tunnel.iperf3 --server "srd-lab exec h2 --" --client "srd-lab exec h1 --" 10.0.2.1 10.88.0.2

README.md has the commands that make the lab and the tunnel. `hosts` is what the examples share.
"""
