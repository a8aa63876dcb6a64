"""Random requests of every API and version against real nodes: no node may stop, and no unexpected exception may occur.

    python -m tests.fuzz --seconds 600 --seed 7

`values` generates the requests (pure). `cluster_run` sends them to a cluster of processes and checks the results.
"""
