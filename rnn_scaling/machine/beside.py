"""A part of long work, done beside the rest of it by a copy of this process on another core."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rnn_scaling.machine.cores import available_cores

T = TypeVar("T")


@contextlib.contextmanager
def beside(work: Callable[[], T], pays: bool = True) -> Iterator[Callable[[], T]]:
    """Begins `work` in a copy of this process, which ends with the block; yields what waits for the result.

    The work is done here, when its result is asked for, on one core, without fork, and where the copy ends without a
    result: killed for memory or by an error, which then shows here.

    Args:
      work: changes nothing outside of itself; what it returns can be pickled.
      pays: whether the work is long enough for a process; if not, it is done here.
    """
    if not pays or len(available_cores()) < 2 or sys.platform != "linux":
        yield work
        return
    import multiprocessing  # 10 ms, which few commands need

    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, mine, its), daemon=True)
    with mine:
        try:
            with its:
                process.start()
        except OSError:  # no more processes, or no memory for one
            yield work
            return

        def result() -> T:
            try:
                returned: T = pickle.loads(mine.recv_bytes())
            except (EOFError, OSError):  # nothing came, or not all
                return work()
            return returned

        try:
            yield result
        finally:
            process.kill()
            process.join()


def _send(work: Callable[[], Any], mine: Any, its: Any) -> None:
    """What the copy does.

    Args:
      work: that it does.
      mine, its: the connection's ends, of the other process and of this one.
    """
    mine.close()  # else it would wait for itself to read, once the other process is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the other process too, which ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        its.send_bytes(pickle.dumps(work(), pickle.HIGHEST_PROTOCOL))
    finally:
        os._exit(0)  # nothing of the other process is ended here, nor is an error told twice
