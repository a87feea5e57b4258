"""The KV cache block by block: one dictionary entry a block, nothing clever. Slow, and used only as truth."""

from collections import OrderedDict


class BlockwiseCache:
    """The same pool as `planner.kv_cache.KvCache`, without its checks."""

    def __init__(self, total_blocks, ttl_s=None, tiers=()):
        self.free_blocks, self.ttl_s, self.tiers = total_blocks, ttl_s, tiers
        self.references, self.idle = {}, OrderedDict()
        self.offloaded = [OrderedDict() for _ in tiers]

    def take(self, n):
        self.free_blocks -= n
        self.evict()

    def give(self, n):
        self.free_blocks += n

    def match(self, keys, now):
        matched = 0
        for key in keys:
            if key not in self.references:
                last_use = next((home[key] for home in (self.idle, *self.offloaded) if key in home), None)
                if last_use is None or (self.ttl_s is not None and last_use < now - self.ttl_s):
                    break
            matched += 1
        return matched

    def hold(self, keys):
        self.free_blocks -= sum(key not in self.references for key in keys)
        for key in keys:
            self.refer(key)
        self.evict()

    def publish(self, keys):
        self.free_blocks += sum(key in self.references for key in keys)
        for key in keys:
            self.refer(key)

    def release(self, keys, now):
        for key in reversed(keys):
            self.references[key] -= 1
            if not self.references[key]:
                del self.references[key]
                self.idle[key] = now
                self.free_blocks += 1

    def fetch_s(self, keys):
        return sum(tier.block_fetch_s for key in keys for tier, home in zip(self.tiers, self.offloaded, strict=True) if key in home)

    def refer(self, key):
        for home in (self.idle, *self.offloaded):
            home.pop(key, None)
        self.references[key] = self.references.get(key, 0) + 1

    def evict(self):
        while len(self.idle) > self.free_blocks:
            key, last_use = self.idle.popitem(last=False)
            for tier, home in zip(self.tiers, self.offloaded, strict=True):
                if tier.capacity_blocks:
                    home[key] = last_use
                    if len(home) <= tier.capacity_blocks:
                        break
                    key, last_use = home.popitem(last=False)
