"""How many KV blocks the decoding sequences need in the next step, without touching any of them."""

from __future__ import annotations

from math import ceil

from planner.workload import Request


class PagedGrowth:
    """One token per step: a sequence needs a block whenever its KV fills the last one, so once per `block_size` decode steps.

    Those steps have the same remainder for the whole of a decode run: counting sequences by remainder is exact.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.sequences_due = [0] * block_size

    def start(self, request: Request, clock: int) -> None:
        self.sequences_due[(clock - request.prompt_tokens) % self.block_size] += 1

    def stop(self, request: Request, clock: int) -> int:
        """Blocks the sequence has taken since `start`."""
        self.sequences_due[(request.start_clock - request.prompt_tokens) % self.block_size] -= 1
        now_tokens = request.prompt_tokens + clock - request.start_clock
        return request.prompt_tokens // -self.block_size - now_tokens // -self.block_size

    def due(self, clock: int) -> int:
        """Blocks wanted by the decode step that starts at `clock`."""
        return self.sequences_due[clock % self.block_size]

    def took(self, blocks: int) -> None:
        pass


class MeanGrowth:
    """Several tokens per step (speculation): all sequences together grow by the sum of their means, and so do their blocks.

    A sequence that has grown by x tokens holds x / block_size more blocks on average, so the blocks owed after a step are
    rate × clock − offset, with both sums kept as sequences come and go.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.rate = self.offset = 0.0
        self.sequences = self.taken = 0

    def start(self, request: Request, clock: int) -> None:
        self.sequences += 1
        self.rate += request.tokens_per_step / self.block_size
        self.offset += request.tokens_per_step / self.block_size * clock

    def stop(self, request: Request, clock: int) -> int:
        self.sequences -= 1
        self.rate -= request.tokens_per_step / self.block_size
        self.offset -= request.tokens_per_step / self.block_size * request.start_clock
        if not self.sequences:
            self.rate = self.offset = 0.0
        freed = self.taken - self._owed(clock)
        self.taken -= freed
        return freed

    def due(self, clock: int) -> int:
        return max(0, self._owed(clock + 1) - self.taken)

    def took(self, blocks: int) -> None:
        self.taken += blocks

    def _owed(self, clock: int) -> int:
        return ceil(self.rate * clock - self.offset - 1e-6)


class NoGrowth:
    """Everything was reserved on admission (contiguous allocation)."""

    def start(self, request: Request, clock: int) -> None:
        pass

    def stop(self, request: Request, clock: int) -> int:
        return 0

    def due(self, clock: int) -> int:
        return 0

    def took(self, blocks: int) -> None:
        pass


Growth = PagedGrowth | MeanGrowth | NoGrowth
