"""Synchronous: the zygote and the control of local node processes; no command line. May import everything below it.

A *zygote* is one small process that has imported what nodes need and forks each of them (`zygote`). `LocalCluster` is
how the rest of the world starts, kills, pauses and stops nodes, through the zygote or, if that has died, by pid files.
"""
