"""`scripts/profile`: how the CPU time of a run is distributed over functions and system calls.

It runs the same workload twice between two namespaces (with the benches' workers and their veth pair): once with both
ends under cProfile, once under strace -c. The results are shares of what each run measured, because a profiler slows
down Python functions, small ones most, and a tracer slows down system calls. The benches measure without overhead.
Waiting, and the bench's own work (making and checking data), are left out.
"""
