"""The KV blocks of one replica: who holds them, which finished prefixes stay readable, and what a slower tier still has.

A block is in exactly one of three states:

* *held, anonymous*: owned by one running sequence and only counted, never named (`take`, `give`);
* *held, keyed*: named by its content and shared by every sequence whose prompt starts that way (`hold`, `publish`);
* *free*: empty, or *idle* – keyed, referenced by nobody, still readable, and evicted in order of last use when space is wanted.

`used_blocks + free_blocks == total_blocks` after every call. Without a prefix cache only two integers move.
Blocks that leave the GPU pass into the offload tiers, fastest first, each an LRU list of its own; a block lives in one place at a time.
Writing to a tier is free (engines do it beside the step), reading back takes `fetch_s`.

Keyed blocks are kept as *runs*: neighbours in a prompt with the same holders and the same last use, found by their first key and split
where two prompts part. A prompt of a thousand blocks is then a few list comparisons, not a thousand look-ups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from planner.scenario import OffloadTier
from planner.units import GB, GIB


@dataclass(frozen=True, slots=True)
class Tier:
    """A slower home for evicted blocks."""

    name: str
    capacity_blocks: int
    block_fetch_s: float
    """Time to read one block back into the GPU, s."""


def tiers_of(offload: Iterable[OffloadTier], block_bytes: float) -> tuple[Tier, ...]:
    """The scenario's `engine.kv_offload` for one replica whose block takes `block_bytes` over all its GPUs."""
    return tuple(Tier(t.tier, int(t.gib * GIB // block_bytes), block_bytes / (t.gb_s * GB)) for t in offload)


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive keyed blocks of a prompt that share one fate."""

    keys: list[Hashable]
    references: int
    last_use: float = 0.0
    """When the last holder let go; counts only without references."""
    tier: int | None = None
    """Where it is: None on the GPU, else the tier's position."""


@dataclass(slots=True)
class KvCache:
    """Block pool of one replica.

    Keys are hashables, one a block, each naming the whole prompt up to the end of that block; so a block is only ever used
    together with all before it, and arguments called `keys` are consecutive blocks of one prompt.
    """

    total_blocks: int
    block_size: int
    prefix: bool = False
    """Keep finished prefixes readable; without it `match` finds nothing and `publish` names nothing."""
    ttl_s: float | None = None
    """Lifetime of an unreferenced block since its last use, s; None means until evicted."""
    tiers: Sequence[Tier] = ()
    free_blocks: int = field(init=False)
    """Blocks that `take` can have: empty ones and idle ones."""
    idle_blocks: int = field(init=False, default=0)
    """Readable blocks that nobody holds; part of `free_blocks`."""
    keyed_blocks: int = field(init=False, default=0)
    """Held blocks that have a key; part of `used_blocks`."""
    _runs: dict[Hashable, _Run] = field(init=False, default_factory=dict)  # by first key
    _idle: OrderedDict[_Run, None] = field(init=False, default_factory=OrderedDict)  # last used longest ago first
    _offloaded: tuple[OrderedDict[_Run, None], ...] = field(init=False)  # by tier, in order of arrival there
    _offloaded_blocks: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.free_blocks = self.total_blocks
        self._offloaded = tuple(OrderedDict() for _ in self.tiers)
        self._offloaded_blocks = [0] * len(self.tiers)

    @property
    def used_blocks(self) -> int:
        """Blocks that running sequences hold, a shared one counted once."""
        return self.total_blocks - self.free_blocks

    def blocks(self, tokens: int) -> int:
        """Blocks that `tokens` tokens fill, the last one perhaps in part."""
        return -(-tokens // self.block_size)

    def take(self, n: int) -> None:
        """Hold `n` more anonymous blocks, evicting the idle blocks used longest ago if need be.

        Raises ValueError when fewer are free: the caller decides whom to preempt, before it takes.
        """
        if n > self.free_blocks:
            raise ValueError(f"{n} KV blocks taken, {self.free_blocks} free")
        self.free_blocks -= n
        if self.idle_blocks > self.free_blocks:
            self._evict()

    def give(self, n: int) -> None:
        """Give back `n` anonymous blocks. Raises ValueError when fewer are held."""
        if n > self.used_blocks - self.keyed_blocks:
            raise ValueError(f"{n} KV blocks given back, {self.used_blocks - self.keyed_blocks} held")
        self.free_blocks += n

    def match(self, keys: Sequence[Hashable], now: float) -> int:
        """How many leading `keys` are readable at time `now`, on the GPU or in a tier. Changes nothing."""
        oldest = float("-inf") if self.ttl_s is None else now - self.ttl_s
        matched = 0
        for run, n in self._walk(keys):
            if not run.references and run.last_use < oldest:
                break
            matched += n
        return matched

    def cost(self, keys: Sequence[Hashable]) -> int:
        """By how many blocks `hold(keys)` would lower `free_blocks`: those of them that nobody holds yet."""
        return sum(n for run, n in self._walk(keys) if not run.references)

    def hold(self, keys: Sequence[Hashable]) -> None:
        """Reference readable blocks (those `match` counted), reading back the offloaded ones; lowers `free_blocks` by `cost(keys)`.

        Raises ValueError, changing nothing, when the pool lacks that many free blocks or a key is not readable.
        """
        found = list(self._walk(keys))
        cost = sum(n for run, n in found if not run.references)
        if cost > self.free_blocks:
            raise ValueError(f"{cost} KV blocks held, {self.free_blocks} free")
        readable = sum(n for _, n in found)
        if readable < len(keys):
            raise ValueError(f"KV block {keys[readable]!r} is held but not cached")
        for run, n in found:
            self._reference(run, n)
        self.free_blocks -= cost
        self.keyed_blocks += cost
        if self.idle_blocks > self.free_blocks:
            self._evict()

    def publish(self, keys: Sequence[Hashable]) -> None:
        """Name as many anonymous held blocks as there are `keys`, and hold them under those names.

        A block whose content is already on the GPU is a duplicate: the sequence shares the first one and its own is freed.
        Raises ValueError when fewer anonymous blocks are held.
        """
        if not self.prefix:
            return
        if len(keys) > self.used_blocks - self.keyed_blocks:
            raise ValueError(f"{len(keys)} KV blocks published, {self.used_blocks - self.keyed_blocks} anonymous ones held")
        known = freed = 0
        for run, n in list(self._walk(keys)):
            known += n
            freed += n if run.references else 0
            self._reference(run, n)
        if known < len(keys):
            self._runs[keys[known]] = _Run(list(keys[known:]), references=1)
        self.keyed_blocks += len(keys) - freed
        self.free_blocks += freed

    def release(self, keys: Sequence[Hashable], now: float) -> None:
        """Drop one reference to each block; those left with none become idle, last used at `now`.

        The end of a prompt goes before its beginning, so that what is evicted first is what fewest prompts can share.
        Raises ValueError when a key is not held.
        """
        found = [(run, n) for run, n in self._walk(keys) if run.references]
        held = sum(n for _, n in found)
        if held < len(keys):
            raise ValueError(f"KV block {keys[held]!r} is released but not held")
        freed = 0
        for run, n in reversed(found):
            run.references -= 1
            if not run.references:
                run.last_use = now
                self._idle[run] = None
                freed += n
        self.idle_blocks += freed
        self.keyed_blocks -= freed
        self.free_blocks += freed

    def fetch_s(self, keys: Sequence[Hashable]) -> float:
        """Time to read back those of `keys` that are in a slower tier, s. Ask before `hold`, which moves them."""
        if not self.tiers:
            return 0.0
        return sum(n * self.tiers[run.tier].block_fetch_s for run, n in self._walk(keys) if run.tier is not None)

    def _walk(self, keys: Sequence[Hashable]) -> Iterator[tuple[_Run, int]]:
        """The runs that `keys` lead through, with how many blocks of each; ends where they part or at a key that is not there."""
        at, end = 0, len(keys)
        while at < end:
            run = self._runs.get(keys[at])
            if run is None:
                return
            own = run.keys if len(run.keys) <= end - at else run.keys[: end - at]
            wanted = list(keys[at : at + len(own)])
            if own != wanted:
                yield run, _common(own, wanted)
                return
            yield run, len(own)
            at += len(own)

    def _reference(self, run: _Run, n: int) -> None:
        """One more holder of the first `n` blocks of a run; the rest of it stays as it is, as a run of its own."""
        if n < len(run.keys):
            run = self._split(run, n)
        if not run.references:
            if run.tier is None:
                self.idle_blocks -= n
                del self._idle[run]
            else:
                self._offloaded_blocks[run.tier] -= n
                del self._offloaded[run.tier][run]
                run.tier = None
        run.references += 1

    def _split(self, run: _Run, n: int) -> _Run:
        """Cut off the first `n` blocks as a run; `run` becomes the rest and keeps its place in the order of eviction."""
        head = _Run(run.keys[:n], run.references, run.last_use, run.tier)
        del run.keys[:n]
        self._runs[head.keys[0]], self._runs[run.keys[0]] = head, run
        if not run.references:
            # Only to leave again at once: the caller is about to hold it.
            (self._idle if run.tier is None else self._offloaded[run.tier])[head] = None
        return head

    def _evict(self) -> None:
        """Let the idle blocks used longest ago go, down the tiers, until the idle ones fit into the free space."""
        while (surplus := self.idle_blocks - self.free_blocks) > 0:
            cut = self._cut_oldest(self._idle, surplus)
            self.idle_blocks -= len(cut.keys)
            self._offload(cut)

    def _cut_oldest(self, order: OrderedDict[_Run, None], most: int) -> _Run:
        """Take up to `most` blocks off the end of the first run in `order`, out of the cache."""
        run = next(iter(order))
        keep = len(run.keys) - most
        if keep > 0:
            cut = _Run(run.keys[keep:], 0, run.last_use)
            del run.keys[keep:]
            return cut
        del order[run], self._runs[run.keys[0]]
        return run

    def _offload(self, run: _Run) -> None:
        """Put evicted blocks into the first tier, and what that pushes out into the next."""
        falling = [run]
        for tier, (home, order) in enumerate(zip(self.tiers, self._offloaded, strict=True)):
            if home.capacity_blocks < 1:
                continue
            for coming in falling:
                coming.tier = tier
                order[coming] = None
                self._runs[coming.keys[0]] = coming
                self._offloaded_blocks[tier] += len(coming.keys)
            falling = []
            while (surplus := self._offloaded_blocks[tier] - home.capacity_blocks) > 0:
                cut = self._cut_oldest(order, surplus)
                self._offloaded_blocks[tier] -= len(cut.keys)
                falling.append(cut)


def _common(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the common beginning of two sequences."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
