"""Synchronous: Produce from request to answer: checks, append, and the wait for acknowledgement. May import
kraft.broker.logs and below."""
