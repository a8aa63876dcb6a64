"""Synchronous: the zygote and the control of local node processes; no command line. May import everything below it."""
