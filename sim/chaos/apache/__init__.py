"""Synchronous: runs processes of Apache Kafka: finds Kafka's files, and lays out, formats and starts nodes."""
