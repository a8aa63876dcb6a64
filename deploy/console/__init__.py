"""Async: `kraft console`, pages in a browser over any Kafka cluster; a client, never part of a node.

`app` puts the parts together: `cluster_view` asks the cluster in the background and keeps what it heard, `pages` and
the sections beside them render that, `guard` refuses requests of other sites. May import everything below kraft.sim and
what the extra `console` installs, never kraft.deploy.cli.
"""
