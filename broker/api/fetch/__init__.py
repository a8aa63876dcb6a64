"""Async: Fetch from request to response: sessions, reading, and parked fetches. May import kraft.broker.logs and below.

The path of a request:

1. `FetchHandler.handle` decodes the request, finds its session (`sessions`) and applies the changes that the request
names. A long request does this in steps, and the dispatcher runs other work between them
(`FetchHandler._begin_in_steps`).
2. `FetchOperation.start` reads the partitions that may have changed (`partition_reading`) and answers if there is
enough.
3. A thread reads bytes that are not in memory (`FetchOperation._warm`); then everything is read again.
4. A fetch that finds too little is parked (`FetchOperation._park`), and watches its partitions.
5. `Partition.settle`, at the end of a pass, calls `CachedPartition.partition_changed` of each watcher. A change that
matters wakes the fetch, and `ReplicaManager` calls `FetchOperation.check_again` after all partitions have settled.
6. A fetch also ends at its deadline (`FetchOperation.expire`), and when the session's next request arrives
(`FetchOperation.answer_empty`).
"""
