"""Async: one small handler module per Kafka API family: it validates, calls a core, and answers now or later. The table
makes the handlers of one broker; `context` has what they use of it. May import the rooms of kraft.broker below it, and
everything below kraft.broker."""
