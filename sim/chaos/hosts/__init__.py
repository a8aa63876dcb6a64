"""Synchronous: faults of the hosts that nodes run on, and a process that cleans up after a run.

`warden` is that process; it cleans up however the run ends. `clocks` moves the wall clock of one process, `disks` gives
a node a small file system that can be filled, and `namespaces` gives it a separate network. Each reports why it is not
available on a machine; the result of the fault is then unknown, not passed. May import kraft.sim.chaos,
kraft.deploy.launch and what is below them.
"""
