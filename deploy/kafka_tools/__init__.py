"""Kafka's command-line tools by their names and options, as words of `kraft`. Pure but for `__main__`; imports nothing
of the product: the container image runs it before each command."""
