"""Synchronous: faults of the hosts that nodes run on, and a warden that leaves nothing of a run behind.

`warden` cleans up after a run whatever ends it. `clocks` moves the wall clock of one process, `disks` gives a node a
small file system that can be filled, `namespaces` gives it a network of its own. Each of them says, in words, why it
cannot be had on a machine: the fault is then unknown, not passed. May import kraft.sim.chaos, kraft.deploy.launch and
what is below them.
"""
