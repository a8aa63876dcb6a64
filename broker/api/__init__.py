"""Async: one small handler module per Kafka API family. A handler validates a request, calls a core, and answers now or
later. `table` makes the handlers of one broker; `context` has the parts of the broker that handlers use.

May import the folders of kraft.broker below it, and everything below kraft.broker.
"""
