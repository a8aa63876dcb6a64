"""Synchronous: topics as sources of batches and streams. What is planned (`batch_plan`, `stream_planner`), what a task
reads (`range_reader`, over `range_fetcher`), and how bytes become Arrow (`arrow_records`, `decoding`)."""
