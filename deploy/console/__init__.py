"""Async: `kraft console`, web pages for any Kafka cluster. It is a client, never part of a node.

`app` assembles the application. `cluster_view` queries the cluster in the background and keeps the responses, `pages`
and the section folders render them, `guard` rejects requests from other sites. May import everything below kraft.sim
and what the extra `console` installs, never kraft.deploy.cli.
"""
