"""The graphs that TensorFlow makes of a step: as traced from Python, after optimization, and the partitions that run.

TensorFlow hands them out for a function's first call only; a warm call yields nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tensorflow.python.eager import context  # no public name leads to the graph collection

T = TypeVar("T")


class FirstCall(Generic[T]):
    """Calls a function and keeps the graphs that its first call made."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.graphs: list[Any] = []  # RunMetadata.FunctionGraphs: pre- and post-optimization and partition GraphDefs

    def __call__(self) -> T:
        if self.graphs:
            return self._function()
        context.context().enable_graph_collection()
        try:
            result = self._function()
            metadata = context.context().export_run_metadata()
        finally:
            context.context().disable_graph_collection()
        self.graphs = list(metadata.function_graphs)
        return result
