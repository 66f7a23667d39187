"""A part of long work, done beside the rest of it by a copy of this process on another core."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rnn_scaling.machine.cores import available_cores

T = TypeVar("T")
MANY = 500  # records or rows, from which on a copy pays
ENDINGS = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def beside(work: Callable[[], T], pays: bool = True) -> Iterator[Callable[[], T]]:
    """Begins `work` in a copy of this process, which ends with the block; yields what waits for the result.

    The work is done here, when its result is asked for, where no copy can be made or may be, and where it ends without
    a result: killed for memory or by an error, which then shows here.

    Args:
      work: changes nothing outside of itself; what it returns can be pickled.
    """
    if not pays or not _may_be_copied():
        yield work
        return
    copy = None
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)  # until the copy has handlers of its own and is ended below
    try:
        copy = _start(work)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        yield work if copy is None else functools.partial(_result, copy[1], work)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        if copy is not None:
            process, mine = copy
            process.kill()
            process.join()
            mine.close()


def _may_be_copied() -> bool:
    """Whether there is a core for a copy, and nothing here that it could wait for: a lock that another thread holds."""
    if sys.platform != "linux" or len(available_cores()) < 2 or threading.active_count() > 1:
        return False
    import multiprocessing  # 10 ms, which few commands need

    return not multiprocessing.current_process().daemon  # which may have no processes of its own


def _start(work: Callable[[], Any]) -> tuple[Any, Any] | None:
    """The copy and the end of its connection; None: the system has no more processes, files or memory for one."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    try:
        mine, its = context.Pipe(duplex=False)
    except OSError:
        return None
    process = context.Process(target=_send, args=(work, mine, its), daemon=True)
    with its:
        try:
            process.start()
        except OSError:
            mine.close()
            return None
    return process, mine


def _result(mine: Any, work: Callable[[], T]) -> T:
    try:
        returned: T = pickle.loads(mine.recv_bytes())
    except (EOFError, OSError):  # nothing came, or not all
        return work()
    return returned


def _send(work: Callable[[], Any], mine: Any, its: Any) -> None:
    """What the copy does."""
    mine.close()  # else it would wait for itself to read, once the other process is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the other process too, which ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    try:
        its.send_bytes(pickle.dumps(work(), pickle.HIGHEST_PROTOCOL))
    finally:
        os._exit(0)  # nothing of the other process is ended here, nor is an error told twice
