"""Delayed signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

import pytest

from refhmc.core.signals import held_back

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are not sent on Windows")


def sent(times, number, done):
    """Send a signal several times in a block, and do something after each."""
    with held_back():
        for _ in range(times):
            os.kill(os.getpid(), number)
            done.append(sum(range(1000)))


@pytest.fixture(autouse=True)
def sigterm_raises(monkeypatch):
    def interrupt(number, frame):
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_after_the_block(number):
    handler = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        sent(1, number, done := [])
    assert len(done) == 1
    assert signal.getsignal(number) is handler


def test_a_third_signal_interrupts_the_block():
    with pytest.raises(KeyboardInterrupt):
        sent(3, signal.SIGINT, done := [])
    assert len(done) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_that_is_forked_in_the_block_is_ended_by_sigterm():
    """Another thread may fork meanwhile. A process pool waits for its workers after it has terminated them."""
    with held_back():
        child = os.fork()
        if child == 0:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            os._exit(15)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 15


def test_an_error_in_the_block_does_not_lose_the_signal():
    def fail():
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("of the block")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_are_left_alone():
    seen = []

    def work():
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
