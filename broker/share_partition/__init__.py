"""Pure: the delivery state of one partition's records for one share group, as the leader of the partition keeps it.

May import kraft.broker.shard and kraft.wire. Reading order: `states` (the states of a record, and the batches in which
they are persisted), `offset_runs` (a value per offset, kept as runs), `log_ranges` (which fetched offsets are records
that consumers may get), `share_partition` (the state machine), `acknowledging` (the checks of acknowledgements),
`portions` (how many records with few deliveries left are delivered together).
Source: KIP-932, Kafka's SharePartition.
"""
