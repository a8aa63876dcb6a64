"""Random requests of every API and version against real nodes: no node may end, and none may meet an exception that
nobody expected.

    python -m tests.fuzz --seconds 600 --seed 7

`values` makes the requests (pure), `cluster_run` sends them to a cluster of processes and looks at what became of it.
"""
