"""Pure: the group coordinator as a state machine over the records of one `__consumer_offsets` partition.

May import kraft.wire. Reading order: `requests` (what is asked and answered), `step` (what a call asks of its driver),
`records` (what stands in the log), `durable` (what the log says), `classic_group` (what is in memory only),
`rebalance`, `joining`, `syncing`, `membership`, `offsets`, `expiry` (the rules), and `coordinator`, their sum.
"""
