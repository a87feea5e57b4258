"""What an engine may do in one step, in vLLM's words."""

from __future__ import annotations

from dataclasses import dataclass

from planner.scenario import Engine


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one replica. Nothing here depends on a GPU or a model but `max_model_len` and `window`."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    enable_chunked_prefill: bool = True
    max_model_len: int | None = None
    """Longest sequence, prompt and output; longer outputs are cut, longer prompts fail."""
    contiguous: bool = False
    """Reserve the longest possible sequence on admission instead of taking blocks on demand."""
    max_output_len: int | None = None
    """What a contiguous reservation adds to the prompt when there is no max_model_len."""
    static_timeout_s: float = 0.0
    """How long an idle engine waits for max_num_seqs requests before it starts with fewer; 0 unless batching is static."""
    async_scheduling: bool = False
    """Plan each step while the one before it runs: a request that comes meanwhile waits for the step after."""
    num_speculative_tokens: int = 0
    window: int | None = None
    """Tokens that sliding-window layers look back on; None without such layers."""

    @property
    def tokens_per_decode(self) -> int:
        """Budget tokens of one decoding sequence: its last token and the drafts behind it."""
        return 1 + self.num_speculative_tokens

    @property
    def seats(self) -> int:
        """Sequences that may run at once: every one of them must be able to decode in every step."""
        return max(1, min(self.max_num_seqs, self.max_num_batched_tokens // self.tokens_per_decode))

    def reserved_tokens(self, input_tokens: int, output_tokens: int) -> int:
        """Tokens a contiguous allocation sets aside for one sequence."""
        if self.max_model_len is not None:
            return self.max_model_len
        return input_tokens + (self.max_output_len or output_tokens)


def limits_of(
    engine: Engine,
    max_model_len: int | None = None,
    window: int | None = None,
    num_speculative_tokens: int = 0,
    max_output_len: int | None = None,
) -> Limits:
    """The engine's settings as limits; the last four come from the model, `speculative` and the workload."""
    return Limits(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        max_model_len=engine.max_model_len or max_model_len,
        contiguous=engine.kv_allocation == "contiguous",
        max_output_len=max_output_len,
        static_timeout_s=engine.static_timeout_s if engine.batching == "static" else 0.0,
        async_scheduling=engine.async_scheduling,
        num_speculative_tokens=num_speculative_tokens,
        window=window,
    )
