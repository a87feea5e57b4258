"""The kernel sum: what every kernel of a step takes, tabulated by tokens so that a step loop can ask a million times."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from planner.problems import Problem
from planner.roofline.attention import NO_WINDOW, ChunkCosts, DecodeCosts, pairs
from planner.roofline.model import Source, StepShape, Term, merged
from planner.roofline.terms import Piece, TokenTerm


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a step's time is made of, before scaling."""

    stages: tuple[tuple[TokenTerm, ...], ...]
    """Token-dependent kernels of every pipeline stage."""
    head: TokenTerm | None
    decode: DecodeCosts
    plain_decode: DecodeCosts
    """Decode attention of a step that verifies no drafts."""
    chunks: tuple[ChunkCosts, ...]
    chunk_launch_s: float
    one_attention_kernel: bool
    """Decode and prefill rows of a mixed step share one attention kernel, so the longer launch covers both."""
    recurrent_s_per_token: float
    hop_s: float
    """Handing a micro-batch to the next stage, constant part, all hops."""
    hop_s_per_token: float
    host_s: float
    host_s_per_sequence: float
    overlapped_host_s_per_sequence: float
    """Host work that runs beside the step: the step takes at least this much for every sequence that emits."""
    eager_floor_s: float
    """Least time of a decode step that runs without CUDA graphs; 0 with them."""
    graph_sequences: int
    """Largest decode batch of one data-parallel rank with a captured graph; beyond it `ungraphed_floor_s` holds."""
    ungraphed_floor_s: float
    dispatch_s: float
    """Time to launch all layers of a prefill step that no captured graph covers; 0 where it hides behind the GPU."""
    pipeline: int
    data_parallel: int
    drafts: int
    """Drafted tokens per sequence (k)."""
    draft_passes: int
    weight_read_s: float
    token_compute_s: float


class StepTime:
    """Seconds of a step of one replica, whole; `explain` names what they are spent on.

    Token-dependent kernels are looked up in a table filled on demand and exact at whole tokens; attention is linear in the
    contexts; a prefill chunk has a closed form. Threads may share one: filling an entry twice gives the same entry. `spread` is what
    borrowed kernels add to the error of a step, half-width on the log scale.
    """

    __slots__ = (
        "_any_sparse",
        "_beside_table",
        "_decode_table",
        "_draft",
        "_head_table",
        "_parts",
        "_scale",
        "_sparse",
        "_token_table",
        "api_s",
        "level",
        "notes",
        "sources",
        "spread",
    )

    def __init__(
        self,
        parts: Parts,
        level: str,
        scale: float = 1.0,
        notes: tuple[Problem, ...] = (),
        draft: StepTime | float | None = None,
        api_s: float = 0.0,
        spread: float = 0.0,
        sources: tuple[Source, ...] = (),
    ) -> None:
        self.level, self.notes, self.api_s, self.spread, self.sources = level, notes, api_s, spread, sources
        self._parts, self._scale, self._draft = parts, scale, draft
        self._decode_table: dict[int, tuple[float, float, float, float]] = {}
        self._beside_table: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._token_table: dict[tuple[float, float, int, bool], float] = {}
        self._head_table: dict[tuple[float, bool], float] = {}
        self._sparse = parts.decode.sparse
        self._any_sparse = bool(self._sparse or (isinstance(draft, StepTime) and draft._sparse))

    def decode(self, decode_sequences: int, context_tokens: float = 0, windowed_context_tokens: float = 0) -> float:
        """Seconds of a step that only decodes: Σ context and Σ min(context, window) over its sequences."""
        try:
            base, context, windowed, floor = self._decode_table[decode_sequences]
        except KeyError:
            base, context, windowed, floor = self._fill(decode_sequences)
        if self._any_sparse:
            base += self._sparse_decode_s(decode_sequences, context_tokens)
        seconds = base + context * context_tokens + windowed * windowed_context_tokens
        return seconds if seconds > floor else floor

    def __call__(self, shape: StepShape) -> float:
        """Seconds of one step."""
        n, context_tokens, windowed, chunks, rows, verify = shape
        if not chunks:
            return self.decode(n, context_tokens, windowed)
        parts = self._parts
        new, attention, longest = 0, 0.0, 0
        costs = parts.chunks
        if len(costs) == 1 and costs[0].window == NO_WINDOW and not costs[0].indexer_per_pair and parts.data_parallel == 1:
            c = costs[0]
            per_pair, half, per_prefix = c.per_pair, c.half_tokens, c.per_prefix
            for fresh, cached in chunks:
                new += fresh
                length = cached + fresh
                attention += per_pair * fresh * (cached + fresh / 2) * (1 + half / length) + per_prefix * cached
        else:
            each = [chunk_s(costs, fresh, cached) for fresh, cached in chunks]
            new, longest = sum(fresh for fresh, _ in chunks), max(fresh for fresh, _ in chunks)
            attention = max(sum(each) / parts.data_parallel, max(each))
        flow = 1 if parts.pipeline == 1 else min(parts.pipeline, n + len(chunks))
        dp = parts.data_parallel
        if dp == 1:
            tokens: float = (n + verify + new) / flow
            every = tokens
        else:
            tokens = (ceil(n / dp) * (1 + verify / n if n else 1) + max(ceil(new / dp), longest)) / flow
            every = (n + verify + new) / flow
        verifying = verify > 0
        key = (tokens, every, flow, verifying)
        fixed = self._token_table.get(key)
        if fixed is None:
            fixed = self._token_table[key] = self._scale * self._tokens_s(tokens, every, flow, verifying)
        out = (rows + verify) / dp / flow
        head = self._head_table.get((out, verifying))
        if head is None:
            head = self._head_table[out, verifying] = self._scale * self._head_s(out, verifying)
        beside = self._beside_table.get((n, flow))
        if beside is None:
            beside = self._beside_table[n, flow] = self._beside_s(n, flow)
        base, per_context, per_windowed = beside
        seconds = (attention + parts.recurrent_s_per_token * max(new / dp, longest)) / flow * self._scale
        seconds += fixed + head + base + per_context * context_tokens + per_windowed * windowed
        if self._sparse and n:
            seconds += self._sparse_s(n, context_tokens, flow)
        if self._draft is not None:
            seconds += self._drafting_s(shape)
        floor = self._chunk_floor_s(n, new, len(chunks))
        return seconds if seconds > floor else floor

    def explain(self, shape: StepShape) -> tuple[Term, ...]:
        """The same time in named terms; they add up to the call but for the last bits of a float."""
        n, context_tokens, windowed, chunks, rows, verify = shape
        if not chunks:
            k = self._parts.drafts
            rows, verify = n, n * k
            if not n:
                return ()
        parts, dp = self._parts, self._parts.data_parallel
        phase = "step" if n and chunks else "prefill" if chunks else "decode"
        new, longest = sum(fresh for fresh, _ in chunks), max((fresh for fresh, _ in chunks), default=0)
        flow = max(1, min(parts.pipeline, n + len(chunks)))
        tokens = (ceil(n / dp) * (1 + verify / n if n else 1) + (max(ceil(new / dp), longest) if dp > 1 else new)) / flow
        every = (n + verify + new) / flow
        terms = [Term(name, phase, s, bound) for name, s, bound in self._token_pieces(tokens, every, flow, verify > 0)]
        if parts.head is not None:
            out = (rows + verify) / dp / flow
            terms += [Term(name, phase, s, bound) for name, s, bound in parts.head(out, out, verify > 0)]
        share, d = 1 / (dp * flow), parts.decode
        shared_launch = d.launch if n and parts.one_attention_kernel else 0.0
        if n:
            arithmetic = d.compute_share * context_tokens * share
            terms += [
                Term("attention", "decode", (d.per_context * context_tokens + d.per_windowed * windowed) * share - arithmetic, "memory"),
                Term("attention", "decode", arithmetic, "compute"),
                Term("attention", "decode", (d.per_sequence - d.state_per_sequence) * n * share, "launch"),
                Term("recurrent state", "decode", d.state_per_sequence * n * share, "memory"),
                Term("launch", "decode", d.launch, "launch"),
            ]
            for seconds, most in self._sparse:
                terms.append(Term("attention", "decode", seconds * min(context_tokens, n * most) * share, "memory"))
        if chunks:
            each = [chunk_s(parts.chunks, fresh, cached) for fresh, cached in chunks]
            terms += [
                Term("attention", "prefill", max(sum(each) / dp, max(each)) / flow, "compute"),
                Term("recurrent", "prefill", parts.recurrent_s_per_token * max(new / dp, longest) / flow, "compute"),
                Term("launch", "prefill", max(0.0, parts.chunk_launch_s - shared_launch), "launch"),
            ]
        terms.append(Term("host", phase, parts.host_s + parts.host_s_per_sequence * n, "host"))
        scaled = [Term(t.name, t.phase, t.seconds * self._scale, t.bound) for t in terms]
        if self._draft is not None:
            scaled.append(Term("drafting", phase, self._drafting_s(shape), "draft"))
        floor = self._chunk_floor_s(n, new, len(chunks)) if chunks else self._floor_s(n)
        scaled.append(Term("host", phase, floor - sum(t.seconds for t in scaled), "host"))
        return merged([t for t in scaled if t.seconds > 0])

    def compute_bound_batch(self) -> float:
        """Batch of the replica whose arithmetic takes as long as reading the weights, at this level's rates.

        All data-parallel ranks and all micro-batches in flight together: each stage reads its weights once for every micro-batch.
        """
        parts = self._parts
        return parts.pipeline * parts.weight_read_s / parts.token_compute_s if parts.token_compute_s else float("inf")

    def _fill(self, n: int) -> tuple[float, float, float, float]:
        """Constant, per context token, per windowed token and least time of a decode step of `n` sequences; draft passes included."""
        if n <= 0:
            self._decode_table[n] = (0.0, 0.0, 0.0, 0.0)
            return self._decode_table[n]
        parts, d, dp = self._parts, self._parts.decode, self._parts.data_parallel
        flow = min(parts.pipeline, n)
        each = 1 + parts.drafts
        verifying = parts.drafts > 0
        seconds = self._tokens_s(ceil(n / dp) * each / flow, n * each / flow, flow, verifying)
        seconds += self._head_s(n * each / dp / flow, verifying)
        share = 1 / (dp * flow)
        seconds += d.launch + d.per_sequence * n * share
        seconds += parts.host_s + parts.host_s_per_sequence * n
        row = (seconds * self._scale, d.per_context * share * self._scale, d.per_windowed * share * self._scale)
        draft = self._draft
        if isinstance(draft, StepTime):
            base, context, windowed, _ = draft._decode_table.get(n) or draft._fill(n)
            k = parts.draft_passes
            row = (row[0] + k * base, row[1] + k * context, row[2] + k * windowed)
        elif draft is not None:
            plain = self._plain(n)
            row = (row[0] + draft * plain[0], row[1] + draft * plain[1], row[2] + draft * plain[2])
        self._decode_table[n] = (*row, self._floor_s(n))
        return self._decode_table[n]

    def _beside_s(self, n: int, flow: int) -> tuple[float, float, float]:
        """What `n` decoding sequences and the launches take in a step with chunks: constant, per context token, per windowed token."""
        parts, d = self._parts, self._parts.decode
        if not n:
            return (parts.host_s + parts.chunk_launch_s) * self._scale, 0.0, 0.0
        share = self._scale / (parts.data_parallel * flow)
        launch = max(d.launch, parts.chunk_launch_s) if parts.one_attention_kernel else d.launch + parts.chunk_launch_s
        base = (parts.host_s + launch + parts.host_s_per_sequence * n) * self._scale + d.per_sequence * n * share
        return base, d.per_context * share, d.per_windowed * share

    def _plain(self, n: int) -> tuple[float, float, float]:
        """What the step would take without speculation: the unit of `speculative.draft_cost`."""
        parts, d, dp = self._parts, self._parts.plain_decode, self._parts.data_parallel
        flow = min(parts.pipeline, n)
        share = 1 / (dp * flow)
        seconds = self._tokens_s(ceil(n / dp) / flow, n / flow, flow, False) + self._head_s(n / dp / flow, False)
        seconds += d.launch + d.per_sequence * n * share
        return seconds * self._scale, d.per_context * share * self._scale, d.per_windowed * share * self._scale

    def _drafting_s(self, shape: StepShape) -> float:
        """Drafting beside a step with or without chunks: k passes over the decoding sequences, one over the chunks."""
        n, context, windowed, chunks, _rows, _verify = shape
        draft = self._draft
        seconds = 0.0
        if isinstance(draft, StepTime):
            if n:
                seconds = self._parts.draft_passes * draft.decode(n, context, windowed)
            if chunks:
                seconds += draft(StepShape(0, 0, 0, chunks, 0, 0))
        elif draft is not None and n:
            base, per_context, per_windowed = self._plain(n)
            sparse_s = self._sparse_s(n, context, min(self._parts.pipeline, n))
            seconds = draft * (base + per_context * context + per_windowed * windowed + sparse_s)
        return seconds

    def _sparse_decode_s(self, n: int, context_tokens: float) -> float:
        """Sparse attention of a step that only decodes, and of its draft passes."""
        draft, own_s = self._draft, self._sparse_s(n, context_tokens, min(self._parts.pipeline, n or 1))
        if isinstance(draft, StepTime):
            return own_s + self._parts.draft_passes * draft._sparse_s(n, context_tokens, flow=1)
        return own_s * (1 + (draft or 0.0))

    def _sparse_s(self, n: int, context_tokens: float, flow: int) -> float:
        """Attention that stops at its top k, of one of `flow` micro-batches."""
        share = self._scale / (self._parts.data_parallel * flow)
        return sum(seconds * min(context_tokens, n * most) for seconds, most in self._sparse) * share

    def _floor_s(self, n: int) -> float:
        """Least time of a decode step: launches without a captured graph, and the host's work on every sequence."""
        parts = self._parts
        launches = parts.eager_floor_s or (parts.ungraphed_floor_s if ceil(n / parts.data_parallel) > parts.graph_sequences else 0.0)
        return max(launches, parts.overlapped_host_s_per_sequence * n / parts.data_parallel) * self._scale

    def _chunk_floor_s(self, n: int, new: int, chunks: int) -> float:
        """Least time of a step with chunks: the same, and the dispatch of every layer once the tokens outgrow the captured graphs."""
        parts = self._parts
        floor = parts.overlapped_host_s_per_sequence * (n + chunks) / parts.data_parallel
        if parts.dispatch_s > floor and ceil((n + new) / parts.data_parallel) > parts.graph_sequences:
            floor = parts.dispatch_s
        return floor * self._scale

    def _tokens_s(self, tokens: float, every: float, flow: int, verifying: bool) -> float:
        return sum(seconds for _, seconds, _ in self._token_pieces(tokens, every, flow, verifying))

    def _token_pieces(self, tokens: float, every: float, flow: int, verifying: bool) -> list[Piece]:
        """Kernels of all stages for one micro-batch; the wait for the slowest stage when `flow` micro-batches follow each other."""
        parts = self._parts
        pieces: list[Piece] = []
        slowest = total = 0.0
        for stage in parts.stages:
            own = [piece for term in stage for piece in term(tokens, every, verifying)]
            seconds = sum(s for _, s, _ in own)
            slowest, total = max(slowest, seconds), total + seconds
            pieces += own
        if parts.pipeline > 1:
            pieces.append(("pipeline hop", parts.hop_s + parts.hop_s_per_token * tokens, "link"))
            pieces.append(("pipeline wait", max(0.0, flow * slowest - total), "link"))
        return pieces

    def _head_s(self, rows: float, verifying: bool) -> float:
        head = self._parts.head
        return sum(seconds for _, seconds, _ in head(rows, rows, verifying)) if head else 0.0


def chunk_s(costs: tuple[ChunkCosts, ...], new: int, cached: int) -> float:
    """Prefill attention of one chunk behind `cached` tokens, all layers."""
    seconds = 0.0
    length = cached + new
    for per_pair, half, per_prefix, window, indexer in costs:
        if length <= window:
            seconds += per_pair * new * (cached + new / 2) * (1 + half / length) + per_prefix * cached
        else:
            seconds += per_pair * pairs(new, cached, window) * (1 + half / window) + per_prefix * min(cached, window)
        if indexer:
            seconds += indexer * new * (cached + new / 2)
    return seconds
