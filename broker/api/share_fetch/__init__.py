"""Async: ShareFetch and ShareAcknowledge from request to response: share sessions, the share partitions of this broker,
reading, acquiring, and parked requests. May import kraft.broker.coordinator and below.

The path of a ShareFetch:

1. `handle_share_fetch` finds the share session (`share_sessions`) and passes the acknowledgements in the request to the
share partitions (`share_acknowledgements`).
2. When they are persisted, `ShareFetchOperation` reads each partition of the session (`share_reading`) and acquires
what is available in it. A share partition that is not loaded yet is loaded first (`led_share_partition`).
3. A request that acquired nothing is parked, and so is one that could acquire fewer bytes than its minimum. It is
checked again when one of its share partitions has records.

An acknowledgement is answered when the share coordinator has persisted it. Source: KIP-932.
"""
