"""Pure: the share coordinator as a state machine over the records of one `__share_group_state` partition.

May import kraft.broker.shard, kraft.broker.share_partition and kraft.wire. Reading order: `records` (the records in the
log), `share_state` (what a share partition's records add up to), `requests` (requests and their replies), `step` (the
work that a call returns to its driver), `coordinator` (a whole partition). Source: KIP-932.
"""
