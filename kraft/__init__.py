"""pykraft: Apache Kafka's system in Python. Every module is imported under this one package.

`kraft.broker`, `kraft.client`, `kraft.sim` and `kraft.deploy` are symbolic links to the repository's top folders.
"""

import os

if os.path.isfile(os.path.join(os.path.dirname(__file__), "broker")):
    raise ImportError(
        "this checkout of pykraft has no symbolic links (kraft/broker is a text file). "
        "Clone with 'git -c core.symlinks=true clone' on a file system that has them."
    )
