"""Synchronous: the replicas of one partition on a heap of events, with the decisions of production's controller. May
import what kraft.sim.cores may.

- `log`: a partition's log on a disk
- `links`: delivery of messages
- `leading`, `following`: the two roles of a replica
- `broker`: one broker around them
- `controller`: the active controller
- `world`: all of it under one seed
- `witness`: callbacks for every event
- `checks`: the invariants
- `chaos`: the schedule of faults

The cores are production's: `kraft.broker.replica`, `kraft.control`, `kraft.image`, the epoch cache of `kraft.storage`
and the sessions of `kraft.controller`. The code here connects them, as `kraft.broker.roles` and
`kraft.controller.command_queue` do in a node.
"""
