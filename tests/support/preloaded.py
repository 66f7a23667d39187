"""What the fork server imports last: its objects are nobody's garbage, which no fork need search, and so copy."""

import gc

gc.collect()
gc.freeze()
gc.set_threshold(50_000, 20, 20)  # as tests/conftest.py
