"""The last import of the fork server.

It freezes all objects, so that the garbage collector of a fork need not visit them,
which would copy their memory.
"""

import gc
import os

# No process under test waits for the disk; conftest.py does the same.
os.fsync = lambda descriptor: None
gc.collect()
gc.freeze()
