"""Async: Produce from request to response: checks, append, and the wait for acknowledgement. May import
kraft.broker.logs and below.

The path of a request:

1. `ProduceHandler.handle` decodes it. A plain request (one batch that its partition can append at once) continues in
`_append_plain`. Every other request continues in `GeneralProduce.run`, which makes all checks in their documented
order.
2. The batch is checked and corrected (`prepare_batch`). If iterating over its records takes long, a thread does it; the
request continues in `GeneralProduce._open_and_append`.
3. A batch that may open a transaction waits until the transaction coordinator has confirmed it
(`TransactionVerification.ask`), behind older batches of its producer (`WaitingBatches`). It continues in
`GeneralProduce._resume`, which repeats all checks.
4. A batch that its partition cannot append yet waits in `Partition.pending`. It continues in `GeneralProduce._append`,
when `Partition.run_pending` removes it from that queue.
5. The batch is appended (`Partition.append_as_leader`). If it must be acknowledged, it waits in `Partition.waiting` for
the high watermark, or in `Partition.waiting_for_disk` for a sync.
6. `Partition.settle`, at the end of the pass, or `Partition.synced` calls `acknowledged` (of SingleProduce or
PartitionProduce), which sends the response. At the deadline `Deadlines` calls `expire`, which sends REQUEST_TIMED_OUT.
"""
