"""The thread that waits for sockets on behalf of event loops without `add_reader`."""

from __future__ import annotations

import asyncio
import socket

from leaselock._backends.loop_readiness import SelectorThread, watcher_of


def test_a_loop_that_can_wait_for_sockets_does() -> None:
    loop = asyncio.new_event_loop()
    assert watcher_of(loop) is loop
    loop.close()


def test_callbacks_run_in_the_loop_as_often_as_there_is_something_to_read() -> None:
    async def read() -> list[bytes]:
        loop = asyncio.get_running_loop()
        thread = SelectorThread(loop)
        ours, theirs = socket.socketpair()
        received: asyncio.Queue[bytes] = asyncio.Queue()
        thread.add_reader(ours.fileno(), lambda: received.put_nowait(ours.recv(1)))
        theirs.send(b"abc")
        words = [await received.get() for _ in range(3)]
        thread.remove_reader(ours.fileno())
        theirs.send(b"d")
        # The thread has seen the removal when it reports the next socket.
        thread.add_reader(theirs.fileno(), lambda: received.put_nowait(theirs.recv(1)))
        ours.send(b"e")
        words.append(await received.get())
        thread.remove_reader(theirs.fileno())
        ours.close()
        theirs.close()
        return words

    assert asyncio.run(read()) == [b"a", b"b", b"c", b"e"]


def test_a_socket_can_be_waited_for_until_it_can_be_written() -> None:
    async def fill_and_wait() -> None:
        loop = asyncio.get_running_loop()
        thread = SelectorThread(loop)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sent = 0
        try:
            while True:
                sent += ours.send(bytes(65536))
        except BlockingIOError:
            pass
        writable = asyncio.Event()
        thread.add_writer(ours.fileno(), writable.set)
        while sent:
            sent -= len(theirs.recv(sent))
        await writable.wait()
        thread.remove_writer(ours.fileno())
        ours.close()
        theirs.close()

    asyncio.run(fill_and_wait())


def test_a_closed_socket_that_nobody_removed_stops_no_other() -> None:
    async def read() -> bytes:
        loop = asyncio.get_running_loop()
        thread = SelectorThread(loop)
        closed, ours, theirs = socket.socket(), *socket.socketpair()
        thread.add_reader(closed.fileno(), lambda: None)
        thread.add_reader(ours.fileno(), lambda: received.set_result(ours.recv(1)))
        closed_number = closed.fileno()
        closed.close()
        received: asyncio.Future[bytes] = loop.create_future()
        theirs.send(b"a")
        thread.remove_reader(closed_number)
        word = await received
        ours.close()
        theirs.close()
        return word

    assert asyncio.run(read()) == b"a"
