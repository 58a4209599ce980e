"""Partitions on the workers, and a pass over all of them: one task for each worker, and a tree of additions.

A sum is as many integers as the query has coordinates. The last sixteen are added up here, which saves Dask one more
round of messages, unless they are long. Integers add up to the same total in any tree and as often as they are
computed: Dask may run a task twice, or elsewhere after its worker was lost, and the result has the same bits.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast
from uuid import uuid4

from numpy.typing import NDArray

from tailguard._optional import import_optional
from tailguard.engines.dask import tasks
from tailguard.engines.dask.tasks import Part
from tailguard.engines.source import MEMORY
from tailguard.engines.threads import thread_count

FEW = 2**13  # integers in all of the sums that are added up here: 64 KiB
_FAN = 16  # sums that one task adds up: the depth of the tree is the logarithm to this base
_SHARES = 4096  # shares of files, if there are not more threads: more would cost the scheduler seconds
_KEPT = 0.5  # of the workers' memory: rows that take more are computed anew, or read, on every pass
_FORGET = 64  # sums that workers keep, until they are told to forget them all
_LOOK = 5.0  # seconds after which it is looked again where partitions are


@dataclass(frozen=True)
class Parts:
    """Partitions as Dask knows them: references to them, and the tasks that compute those that are not held."""

    graph: dict[Any, Any]
    refs: list[Any]
    lengths: tuple[int, ...]
    room: Room
    client: Any
    threads: int | None
    apart: bool = False  # whether it does not matter where they are, because they are read from files
    _shares: list[Any] = field(default_factory=lambda: [0.0, []], compare=False)
    _done: list[Any] = field(default_factory=list, compare=False)  # results that Dask was not yet told to forget

    @staticmethod
    def of(graph: dict[Any, Any], keys: list[Any], lengths: tuple[int, ...], room: Room, threads: int | None) -> Parts:
        """Load the partitions, on the workers, if they are to be held."""
        client = active_client()
        if not room.held:
            return Parts(graph, keys, lengths, room, client, threads)
        if client is not None:
            return Parts({}, client.get(graph, keys, sync=False), lengths, room, client, threads)
        found = computed(graph, keys, threads, None)
        here = {key: (partial(tasks.same, part),) for key, part in zip(keys, found, strict=True)}
        return Parts(here, keys, lengths, room, None, threads)

    @staticmethod
    def counted(graph: dict[Any, Any], keys: list[Any], size: int, threads: int | None) -> Parts:
        """Load partitions of unknown lengths, with rows of ``size`` bytes.

        They are loaded once, and then counted, if the first of them promises that there is twice the room; else they
        are counted before, which loads them twice.
        """
        lengths = _lengths(graph, keys[:1], threads)
        loaded = None
        if Room.of(2 * lengths[0] * len(keys), size).held:
            loaded = Parts.of(graph, keys, (0,) * len(keys), Room(True), threads)
        lengths = _lengths(graph, keys, threads) if loaded is None else _lengths(loaded.graph, loaded.refs, threads)
        room = Room.of(sum(lengths), size)
        if loaded is None or not room.held:
            return Parts.of(graph, keys, lengths, room, threads)
        return replace(loaded, lengths=lengths, room=room)

    def mapped(self, job: Callable[[Part], Part], name: str) -> Parts:
        """Return what a function makes of every partition, on its worker, when it is asked for."""
        token, packed = uuid4().hex, tasks.packed(job, self.client)
        run = partial(tasks.apply, packed)
        made = {(f"tailguard-{name}-{token}", i): (run, ref) for i, ref in enumerate(self.refs)}
        return replace(self, graph=self.graph | made, refs=list(made), _shares=[0.0, []], _done=[])

    def changed(self, job: Callable[[Part], Part]) -> Parts:
        """Return changed partitions, held if these are."""
        made = self.mapped(job, "part")
        if not self.room.held:
            return made
        return replace(Parts.of(made.graph, made.refs, self.lengths, self.room, self.threads), apart=self.apart)

    def added(
        self,
        job: Callable[..., Any],
        add: Callable[[list[Any]], Any],
        size: int,
        rows: list[NDArray[Any]] | None = None,
    ) -> Any:
        """Return the sum, of about ``size`` numbers, of ``job(part, rows)`` over all partitions, in a tree."""
        token, packed = uuid4().hex, tasks.packed(job, self.client)
        graph = dict(self.graph)
        level: list[Any] = []
        for share, threads in self._shared():
            chosen = [None if rows is None else rows[i] for i in share]
            key = (f"tailguard-sum-{token}", len(level))
            graph[key] = (partial(tasks.sum_share, packed, add, chosen, threads), [self.refs[i] for i in share])
            level.append(key)
        depth = 0
        while len(level) > 1 and (len(level) > _FAN or len(level) * size > FEW):
            depth += 1
            sums = {
                (f"tailguard-add-{token}", depth, k): (partial(tasks.add_up, add), level[k * _FAN : (k + 1) * _FAN])
                for k in range(math.ceil(len(level) / _FAN))
            }
            graph, level = graph | sums, list(sums)
        # Telling Dask to forget a result would make the client wait 10 ms before it sends the next graph.
        if len(self._done) > _FORGET:
            self._done.clear()
        return add(computed(graph, level, self.threads, self.client, self._done))

    def _shared(self) -> list[tuple[list[int], int]]:
        """Partitions that one task adds up, those of a worker, and its threads: few tasks, little to schedule."""
        if not self.room.held:  # a task would wait for all of its partitions, and hold them
            return [([i], 1) for i in range(len(self.refs))]
        if self.client is None:
            return [(share, 1) for share in self._cut(range(len(self.refs)), thread_count(self.threads))]
        looked, shares = self._shares
        if time.monotonic() - looked > _LOOK or not shares:
            self._shares[:] = time.monotonic(), list(self._located())
        return cast(list[tuple[list[int], int]], self._shares[1])

    def _located(self) -> Iterator[tuple[list[int], int]]:
        workers: dict[str, int] = self.client.nthreads()
        if self.apart:  # any worker can read any file: the scheduler gives the next share to the first that is free
            total = sum(workers.values())
            yield from ((share, 1) for share in self._cut(range(len(self.refs)), max(total, min(4 * total, _SHARES))))
            return
        import_optional("distributed", "dask").wait(self.refs)
        who = self.client.who_has(self.refs)
        here: dict[str, list[int]] = {}
        for i, ref in enumerate(self.refs):
            here.setdefault(next(iter(who.get(ref.key, ())), ""), []).append(i)
        for worker, places in here.items():
            threads, rows = workers.get(worker, 1), sum(self.lengths[i] for i in places)
            if rows <= self.room.at_once:
                yield places, threads
            else:  # some are on its disk, and a task has all of its partitions in memory
                yield from (
                    (share, 1) for share in self._cut(places, math.ceil(2 * threads * rows / self.room.at_once))
                )

    def _cut(self, places: Sequence[int], count: int) -> list[list[int]]:
        """Cut partitions into at most ``count`` shares of about equally many rows."""
        shares: list[list[int]] = [[] for _ in range(max(1, min(count, len(places))))]
        load = [0] * len(shares)
        for i in sorted(places, key=lambda i: -self.lengths[i]):
            k = load.index(min(load))
            shares[k].append(i)
            load[k] += self.lengths[i] + 1
        return shares


@dataclass(frozen=True)
class Room:
    """Whether rows are loaded once and held, by the workers or here, and how many a worker has room for."""

    held: bool
    at_once: float = math.inf

    @staticmethod
    def of(rows: int, size: int) -> Room:
        """Room for so many rows of ``size`` bytes; the setting ``tailguard.persist`` decides otherwise."""
        asked = import_optional("dask", "dask").config.get("tailguard.persist", None)
        client = active_client()
        if client is None:
            return Room(rows * size <= MEMORY if asked is None else bool(asked))
        limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
        limited = bool(limits) and all(limits)
        fits = not limited or rows * size <= _KEPT * sum(limits)
        return Room(fits if asked is None else bool(asked), _KEPT * min(limits) / size if limited else math.inf)


def _lengths(graph: dict[Any, Any], refs: list[Any], threads: int | None) -> tuple[int, ...]:
    """Count the rows of partitions, on the workers."""
    token = f"tailguard-count-{uuid4().hex}"
    counts = {(token, i): (tasks.length, ref) for i, ref in enumerate(refs)}
    return tuple(computed(graph | counts, list(counts), threads, active_client()))


def active_client() -> Any:
    """Return the active client of a cluster, if there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise TypeError("the active client is asynchronous, and a fit waits: give Client(..., asynchronous=False).")
    return client


def computed(
    graph: dict[Any, Any], keys: list[Any], threads: int | None, client: Any, done: list[Any] | None = None
) -> list[Any]:
    """Run tasks; the one place where something comes back from the workers. Their futures are added to ``done``."""
    failed = ""
    try:
        if client is not None:
            futures = client.get(graph, keys, sync=False)
            found = client.gather(futures)
            if done is not None:
                done += futures
        else:
            found = import_optional("dask.threaded", "dask").get(graph, keys, num_workers=thread_count(threads))
    except Exception as error:  # of the tasks that make the rows, or of the cluster
        failed = type(error).__name__
    if failed:  # outside, so that the error, which may repeat data, is not kept as a context
        raise tasks.unread(failed)
    for answer in found:
        tasks.checked(answer)
    return list(found)
