"""Pure except `__main__`: translate command lines of Kafka's tools to `kraft` commands. May not import other code of
this repository, because the container image runs the translation before each command.
"""
