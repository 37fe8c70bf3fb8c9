"""`scripts/profile`: where the time of a run goes, so that whoever works on speed starts from facts.

Two runs of the same workload between two namespaces (the benches' workers and their veth pair): one with both ends
under cProfile, one with both under strace -c. Each names shares of what it measured: a profiler slows Python functions
down, most of all small ones, and a tracer slows system calls down. Undisturbed figures are the benches'. What only
waits, and what the bench does for itself (making data, checking it), is left out.
"""
