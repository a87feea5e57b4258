"""Which replica takes a request: four plain rules, and what each does to prefix hits on a recorded trace.

A router is told the request's content keys and asks the replicas for two things only: how much work they have (`load`) and how many
leading keys they could read (`match`). Keys with which *every* request begins – a common system prompt – say nothing about where a
conversation lives, so the rules that look at content skip them: counting them as a match sends everything to one replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import takewhile

import numpy as np

from planner.kv_cache import KvCache
from planner.scenario import Routing
from planner.traces import Trace

Keys = Sequence[Hashable]


@dataclass(slots=True)
class Router:
    """Chooses among replicas that come and go; `names` are their lasting identities, positions are not."""

    routing: Routing
    _sent: int = 0
    _taken: Counter[int] = field(default_factory=Counter)
    """Requests sent to each replica so far; breaks ties of load."""
    _universal: list[Hashable] | None = field(default=None)
    """Longest beginning that all requests so far had in common."""

    def choose(self, keys: Keys, names: Sequence[int], load: Callable[[int], float], match: Callable[[int], int]) -> int:
        """Position in `names` of the replica that takes a request with content `keys`."""
        at = self._choose(keys, names, lambda i: (load(i), self._taken[names[i]]), match)
        self._taken[names[at]] += 1
        self._sent += 1
        return at

    def _choose(self, keys: Keys, names: Sequence[int], load: Callable[[int], tuple[float, int]], match: Callable[[int], int]) -> int:
        if self.routing == "round_robin":
            return self._sent % len(names)
        everyone = range(len(names))
        if self.routing == "least_loaded" or not keys:
            return min(everyone, key=load)
        shared = self._shared(keys)
        if self.routing == "sticky":
            private = keys[min(shared, len(keys) - 1)]
            return max(everyone, key=lambda i: _weight(private, names[i]))
        matched = [max(0, match(i) - shared) for i in everyone]
        best = max(matched)
        return min((i for i in everyone if matched[i] == best), key=load)

    def _shared(self, keys: Keys) -> int:
        """How many leading keys all requests have in common, this one included."""
        if self._universal is None:
            self._universal = list(keys)
        elif list(keys[: len(self._universal)]) != self._universal:
            pairs = zip(self._universal, keys, strict=False)
            self._universal = [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        return len(self._universal)


def _weight(key: Hashable, name: int) -> bytes:
    """Rendezvous hash, the same in every process: each key ranks all replicas, so that losing one moves only its own keys."""
    return blake2b(f"{key}:{name}".encode(), digest_size=8).digest()


def _matched(caches: Sequence[KvCache], keys: Keys, i: int) -> int:
    return caches[i].match(keys, 0.0)


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """What a router made of a trace."""

    hit_rate: float
    """Share of all prompt tokens found cached."""
    imbalance: float
    """Uncached prompt tokens of the busiest replica over the mean."""


def prefix_hits(trace: Trace, replicas: int, pool_tokens: int, routing: Routing) -> PrefixHits:
    """Prefix hits of a trace on `replicas` LRU caches of `pool_tokens` each, blocks usable at once, time left out.

    Load is the uncached prompt tokens sent so far. Raises ValueError when the trace has no content ids.
    """
    if trace.hash_ids is None:
        raise ValueError(f"trace {trace.name} has no block ids, so nothing can be said about its prefixes")
    size = trace.hash_tokens
    caches = [KvCache(pool_tokens // size, size, prefix=True) for _ in range(replicas)]
    router, names = Router(routing), range(replicas)
    work = np.zeros(replicas)
    hit = 0
    for ids, tokens in zip(trace.hash_ids, trace.input_tokens.tolist(), strict=True):
        # A prompt longer than a pool keeps only what fits.
        at = router.choose(ids, names, work.__getitem__, partial(_matched, caches, ids))
        cache, ids = caches[at], ids[: caches[at].total_blocks]
        matched = cache.match(ids, 0.0)
        cache.hold(ids[:matched])
        cache.take(len(ids) - matched)
        cache.publish(ids[matched:])
        cache.release(ids, 0.0)
        cached = min(matched * size, tokens)
        hit += cached
        work[at] += tokens - cached
    return PrefixHits(hit / int(trace.input_tokens.sum()), float(work.max() / work.mean()))
