"""Synchronous: topics as sources of batches and streams.

The planners (`batch_plan`, `stream_planner`) run on the driver. A task uses the reader (`range_reader`, over
`range_fetcher`) and the conversion to Arrow (`arrow_records`, `decoding`).
"""
