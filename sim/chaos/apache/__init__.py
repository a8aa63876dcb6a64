"""Synchronous: Apache Kafka's own processes: where its files are, and how nodes are laid out, formatted and started."""
