"""Workers that exchange nothing: each on its own devices, with its own share of the towers."""

from __future__ import annotations

import dataclasses

from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request


def start(request: Request) -> Engine:
    """The local engine, whose towers are numbered over all workers; errors as there."""
    engine = local.start(request)
    if request.place is None:
        return engine
    return dataclasses.replace(engine, rank=request.place.index, size=request.place.num_workers)
