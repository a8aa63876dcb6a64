"""Pure: the transaction coordinator as a state machine over the records of one `__transaction_state` partition.

May import kraft.wire. Reading order: `states` (which state follows which), `records` (what is in the log), `requests`
(requests and their replies), `step` (the work that a call returns to its driver), `transaction` (one transactional id),
`identity` (InitProducerId), `ending` (EndTxn, markers, completion), `coordinator` (all of a partition).
"""
