"""A signal handler that closes the client in whose call its thread is."""

from __future__ import annotations

import signal
import threading

import pytest
from testkit.servers.process import eventually

import leaselock


def test_close_in_a_handler_ends_the_call_that_it_interrupts() -> None:
    with leaselock.Client("memory://signals") as other, other.lock("a") as held:
        client = leaselock.Client("memory://signals")
        before = signal.signal(signal.SIGALRM, lambda *_: client.close())
        main = threading.get_ident()

        def interrupt() -> None:
            eventually(lambda: other.lock("a").waiters())
            signal.pthread_kill(main, signal.SIGALRM)

        helper = threading.Thread(target=interrupt)
        try:
            helper.start()
            with pytest.raises(leaselock.ClientClosed):
                client.lock("a").acquire()
        finally:
            helper.join()
            signal.signal(signal.SIGALRM, before)
        eventually(lambda: not other.lock("a").waiters())
        held.ensure()
