"""Work beside the rest is done once and whole, wherever it is done, and leaves no process behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from rnn_scaling.machine import beside as module
from rnn_scaling.machine.beside import beside


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(module, "available_cores", lambda: [0, 1])
    monkeypatch.setattr(module.threading, "active_count", lambda: 1)  # the runner of the tests has more


def refuse():
    raise BlockingIOError("no more processes")


def test_a_copy_of_the_process_does_it():
    with beside(os.getpid) as result:
        assert result() not in (None, os.getpid())


def test_where_it_does_not_pay_or_cannot_be_it_is_done_here(monkeypatch):
    with beside(os.getpid, pays=False) as result:
        assert result() == os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refuse)
        with beside(os.getpid) as result:
            assert result() == os.getpid()
    for name, value in (("threading.active_count", 2), ("available_cores", [1])):
        with monkeypatch.context() as patch:
            patch.setattr(f"{module.__name__}.{name}", lambda value=value: value)
            with beside(os.getpid) as result:
                assert result() == os.getpid()


def test_a_process_that_may_have_none_of_its_own_does_it():
    """As those of multiprocessing.Pool, in which somebody may read many folders."""

    def work(told):
        with beside(os.getpid) as result:
            told.send(result() == os.getpid())

    mine, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(its,), daemon=True)
    process.start()
    assert mine.poll(30) and mine.recv() is True
    process.join()


def test_no_signal_stays_blocked():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with beside(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [])) as result:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == result() == blocked


def test_what_a_killed_copy_had_to_do_is_done_here():
    here = os.getpid()

    def killed():
        return "here" if os.getpid() == here else os.kill(os.getpid(), signal.SIGKILL)

    with beside(killed) as result:
        assert result() == "here"


def test_what_cannot_be_sent_is_done_here():
    with beside(lambda: lambda: "a function") as result:
        assert result()() == "a function"


def test_an_error_shows_as_if_there_were_no_copy(capfd):
    with pytest.raises(ZeroDivisionError), beside(lambda: 1 // 0) as result:
        result()
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_is_for_the_first_process_alone():
    with beside(lambda: [os.kill(os.getpid(), signal.SIGINT), os.getpid()]) as result:
        assert result()[1] != os.getpid()


def test_the_copy_ends_with_the_block():
    with pytest.raises(KeyError), beside(lambda: time.sleep(1000)):
        assert len(multiprocessing.active_children()) == 1
        raise KeyError
    assert multiprocessing.active_children() == []
