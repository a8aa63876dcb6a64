"""Async: the clients of a scenario, written once for every library, for real processes and for the simulator.

All times and pauses are trio's, and all random choices use the given `random.Random`. So with pykraft's client in a
simulated world the same seed gives the same history. May import the clients' interface, histories and scenarios, but no
client library.
"""

from kraft.sim.chaos.workloads.workload import ClientWorkload as ClientWorkload
