"""Pure: decisions about configurations of topics, brokers and groups."""
