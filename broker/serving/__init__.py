"""Async: what serves the requests of a broker beside their handlers, and what it shows of itself. May import everything
below kraft.broker, and its siblings."""
