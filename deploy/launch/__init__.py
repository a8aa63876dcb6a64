"""Synchronous: the zygote and the control of local node processes, without a command line. May import everything below
it.

A *zygote* is one small process that has imported the modules that nodes need, and that forks each node (`zygote`).
Other code starts, kills, pauses and stops nodes with `LocalCluster`: through the zygote or, if the zygote has died, by
pid files.
"""
