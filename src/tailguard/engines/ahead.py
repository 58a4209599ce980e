"""A thread that prepares the next items while others work on the last ones."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def read_ahead(items: Generator[Item], depth: int) -> Generator[Item]:
    """Yield items that a thread prepares, at most ``depth`` of them in advance; closing it stops the thread.

    The thread closes ``items``: an interrupt that came while the garbage collector did so would be lost.
    """
    queue: Queue[tuple[Item | None, BaseException | None]] = Queue(depth)
    stop = Event()

    def put(item: Item | None, error: BaseException | None = None) -> None:
        while not stop.is_set():
            with suppress(Full):
                queue.put((item, error), timeout=0.1)
                return

    def work() -> None:
        try:
            with np.errstate(all="ignore"), closing(items):
                for item in items:
                    put(item)
                    if stop.is_set():
                        break
            put(None)
        except BaseException as error:
            put(None, error)

    reader = Thread(target=work, name="tailguard-reader", daemon=True)
    try:
        reader.start()
        while True:
            item, error = queue.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        stop.set()
        if reader.ident is not None:  # an interrupt may come before it started
            reader.join()
