"""Async: Jepsen-like scenarios on processes behind proxies, and on simulated clusters in virtual time.

A scenario (`scenario`) runs on a cluster that can be broken (`kraft.sim.breakable_cluster`). Clients (`clients`) carry
out its workload and record a history (`history`). The observer samples the cluster. `judge` turns history, faults and
samples into a verdict; `report` draws them. This package may import everything except kraft.testing and
kraft.deploy.cli. It needs the extra [chaos].
"""
