"""The KV blocks of one replica: who holds them, which finished prefixes stay readable, and what a slower tier still has.

A block is in exactly one of three states:

* *held, anonymous*: owned by one running sequence and only counted, never named (`take`, `give`);
* *held, keyed*: named by its content and shared by every sequence whose prompt starts that way (`hold`, `publish`);
* *free*: empty, or *idle* – keyed, referenced by nobody, still readable, and evicted in order of last use when space is wanted.

`used_blocks + free_blocks == total_blocks` after every call. Without a prefix cache only two integers move.
Blocks that leave the GPU pass into the offload tiers, fastest first, each an LRU list of its own; a block lives in one place at a time.
Writing to a tier is free (engines do it beside the step), reading back takes `fetch_s`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
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


@dataclass(slots=True)
class KvCache:
    """Block pool of one replica. Keys are hashables, one a block, and name the whole prompt up to the end of that block."""

    total_blocks: int
    block_size: int
    prefix: bool = False
    """Keep finished prefixes readable; without it `match` finds nothing and `publish` names nothing."""
    ttl_s: float | None = None
    """Lifetime of an unreferenced block since its last use, s; None means until evicted."""
    tiers: Sequence[Tier] = ()
    free_blocks: int = field(init=False)
    """Blocks that `take` can have: empty ones and idle ones."""
    _references: dict[Hashable, int] = field(init=False, default_factory=dict)
    _idle: OrderedDict[Hashable, float] = field(init=False, default_factory=OrderedDict)
    _offloaded: tuple[OrderedDict[Hashable, float], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.free_blocks = self.total_blocks
        self._offloaded = tuple(OrderedDict() for _ in self.tiers)

    @property
    def used_blocks(self) -> int:
        """Blocks that running sequences hold, a shared one counted once."""
        return self.total_blocks - self.free_blocks

    @property
    def idle_blocks(self) -> int:
        """Readable blocks that nobody holds; part of `free_blocks`."""
        return len(self._idle)

    @property
    def keyed_blocks(self) -> int:
        """Held blocks that have a key; part of `used_blocks`."""
        return len(self._references)

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
        if len(self._idle) > self.free_blocks:
            self._evict()

    def give(self, n: int) -> None:
        """Give back `n` anonymous blocks. Raises ValueError when fewer are held."""
        if n > self.used_blocks - len(self._references):
            raise ValueError(f"{n} KV blocks given back, {self.used_blocks - len(self._references)} held")
        self.free_blocks += n

    def match(self, keys: Iterable[Hashable], now: float) -> int:
        """How many leading `keys` are readable at time `now`, on the GPU or in a tier. Changes nothing."""
        if not self.prefix:
            return 0
        oldest = float("-inf") if self.ttl_s is None else now - self.ttl_s
        matched = 0
        for key in keys:
            if key not in self._references:
                last_use = self._idle.get(key)
                if last_use is None:
                    last_use = next((tier[key] for tier in self._offloaded if key in tier), None)
                if last_use is None or last_use < oldest:
                    break
            matched += 1
        return matched

    def cost(self, keys: Iterable[Hashable]) -> int:
        """By how many blocks `hold(keys)` would lower `free_blocks`: the distinct ones that nobody holds yet."""
        return len({key for key in keys if key not in self._references})

    def hold(self, keys: Sequence[Hashable], now: float) -> int:
        """Reference readable blocks (those `match` counted), reading back the offloaded ones; returns `cost(keys)`.

        Raises ValueError, changing nothing, when the pool lacks that many free blocks or a key is not readable.
        """
        cost = self.cost(keys)
        if cost > self.free_blocks:
            raise ValueError(f"{cost} KV blocks held, {self.free_blocks} free")
        missing = [key for key in keys if not self._readable(key)]
        if missing:
            raise ValueError(f"KV block {missing[0]!r} is held but not cached")
        for key in keys:
            count = self._references.get(key, 0)
            if count == 0 and self._idle.pop(key, None) is None:
                self._forget_offloaded(key)
            self._references[key] = count + 1
        self.free_blocks -= cost
        if len(self._idle) > self.free_blocks:
            self._evict()
        return cost

    def publish(self, keys: Sequence[Hashable], now: float) -> int:
        """Name as many anonymous held blocks as there are `keys`, and hold them under those names.

        A block whose content is already on the GPU is a duplicate: the sequence shares the first one and its own is freed.
        Returns by how many blocks `free_blocks` grew. Raises ValueError when fewer anonymous blocks are held.
        """
        if not self.prefix:
            return 0
        if len(keys) > self.used_blocks - len(self._references):
            raise ValueError(f"{len(keys)} KV blocks published, {self.used_blocks - len(self._references)} anonymous ones held")
        freed = 0
        for key in keys:
            count = self._references.get(key, 0)
            if count:
                freed += 1
            elif self._idle.pop(key, None) is None:
                self._forget_offloaded(key)
            self._references[key] = count + 1
        self.free_blocks += freed
        return freed

    def release(self, keys: Sequence[Hashable], now: float) -> int:
        """Drop one reference to each block; those left with none become idle, last used at `now`.

        The end of a prompt goes before its beginning, so that what is evicted first is what fewest prompts can share.
        Returns by how many blocks `free_blocks` grew. Raises ValueError when a key is not held.
        """
        freed = 0
        for key in reversed(keys):
            count = self._references.get(key, 0)
            if count > 1:
                self._references[key] = count - 1
            elif count == 1:
                del self._references[key]
                self._idle[key] = now
                freed += 1
            else:
                raise ValueError(f"KV block {key!r} is released but not held")
        self.free_blocks += freed
        return freed

    def fetch_s(self, keys: Iterable[Hashable]) -> float:
        """Time to read back those of `keys` that are in a slower tier, s. Ask before `hold`, which moves them."""
        if not self.tiers:
            return 0.0
        seconds = 0.0
        for key in keys:
            for tier, offloaded in zip(self.tiers, self._offloaded, strict=True):
                if key in offloaded:
                    seconds += tier.block_fetch_s
        return seconds

    def _readable(self, key: Hashable) -> bool:
        return key in self._references or key in self._idle or any(key in tier for tier in self._offloaded)

    def _forget_offloaded(self, key: Hashable) -> None:
        for offloaded in self._offloaded:
            offloaded.pop(key, None)

    def _evict(self) -> None:
        """Let the idle blocks used longest ago go, down the tiers, until the idle ones fit into the free space."""
        while len(self._idle) > self.free_blocks:
            key, last_use = self._idle.popitem(last=False)
            for tier, offloaded in zip(self.tiers, self._offloaded, strict=True):
                if tier.capacity_blocks < 1:
                    continue
                offloaded[key] = last_use
                if len(offloaded) <= tier.capacity_blocks:
                    break
                key, last_use = offloaded.popitem(last=False)
