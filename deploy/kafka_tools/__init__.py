"""Pure except `__main__`: Kafka's command-line tools by their names and options, as words of `kraft`. May import
nothing of the product: the container image runs it before each command."""
