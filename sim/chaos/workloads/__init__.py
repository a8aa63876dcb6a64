"""Async: the clients of a scenario at work, written once for every library and for both worlds.

All times and pauses are trio's, all choices come from the `random.Random` that is given: with our client in a simulated
world the same seed gives the same history. It may import the clients' interface, histories and scenarios, no library.
"""

from kraft.sim.chaos.workloads.workload import Workload as Workload
