"""Pure: consumer groups of the next-generation protocol (KIP-848), in which the broker assigns the partitions.

May import kraft.broker.shard, kraft.broker.regular_expressions and kraft.wire; the group coordinator
(kraft.broker.group) builds on this folder. Reading order: `requests` and `settings` (the interface), `topics` (how
topics are seen), `records` (the records in the log), `state` (the state computed from them). Then `reconciliation`,
`subscriptions`, `targets` and `heartbeat` (decisions). `assignors` is a library without knowledge of groups.
"""
