"""The time of one engine step added up the long way, kernel after kernel and layer after layer: truth for `planner.roofline`.

Nothing is tabulated, grouped or folded. What a rank holds comes from `planner.sharding`, constants from the catalogue's rows; the
formulas are those of the sources that the rows name: a kernel takes its launch and (compute^p + memory^p)^(1/p), p being the row's
knee (Williams et al., Roofline, 2009, with a rounded corner); a ring all-reduce moves 2 (g - 1) / g of its bytes (Patarasuk and
Yuan, 2009); k of E experts chosen T times touch E (1 - (1 - k / E)^T); causal attention scores every token before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner import architecture, hardware, sharding, speculation
from planner.architecture.drafter import drafter
from planner.catalog import kernels
from planner.catalog.gpus import gpus
from planner.roofline import StepShape
from planner.scenario import Model, Scenario

US, MINIMUM_SIDE = 1e-6, 512
GRAPHS = {"vllm": 512, "sglang": 256, "trtllm": 2048}
Kernels = list[float]
"""Seconds of kernels that run one after another."""


class StepOracle:
    """One deployment at the datasheet or calibrated level."""

    def __init__(self, scenario: Scenario, arch: architecture.Architecture | None = None) -> None:
        self.s, self.main = scenario, arch is None
        self.arch = arch or architecture.of(scenario.model)
        self.gpu = hardware.of(scenario.hardware)
        self.shard = sharding.shard(self.arch, scenario.parallel, scenario.precision, self.gpu, scenario.hardware)
        self.ideal = scenario.fidelity == "datasheet"
        self.tp, self.pp = scenario.parallel.tensor_parallel_size, scenario.parallel.pipeline_parallel_size
        self.dp = scenario.parallel.data_parallel_size
        self.assumed = kernels.document()["assumed"]
        self.profile = speculation.profile(scenario.speculative if self.main else None)
        self.k = self.profile.num_speculative_tokens
        self.blocks = bool(self.arch.quantization and self.arch.quantization.block)

    def row(self, kernel: str, dtype: str | None = None, **key: Any) -> dict[str, Any]:
        if self.ideal:
            return {"compute": 1, "memory": 1, "knee": math.inf, "dtype": dtype}
        found = kernels.find(kernel, self.gpu.slug, self.s.engine.name, dtype, **key)
        assert found is not None
        unpacking = dtype == kernels.WEIGHT_ONLY and not found.same_dtype  # arithmetic waits for 16-bit copies of the weights
        return found.row | ({"knee": 1} if unpacking else {})

    def kernel(self, flops: float, size: float, row: dict[str, Any], peak: float, p: float | None = None) -> float:
        """Launch, then compute and memory that overlap as far as the knee says."""
        compute = flops / (peak * row["compute"])
        memory = size / (self.gpu.memory_bandwidth_bytes_s * row["memory"])
        p = row["knee"] if p is None else p
        overlapped = max(compute, memory) if p == math.inf else np.linalg.norm([compute, memory], p)
        return row.get("launch_us", 0) * US + float(overlapped)

    def kernel_type(self, precision: str) -> str:
        if precision in ("auto", "bf16", "fp16"):
            return "bf16"
        if precision == "int8":
            return "fp8"
        return "fp8_block" if precision == "fp8" and self.blocks else precision

    def product(self, gemm: sharding.Gemm, tokens: float, verifying: bool) -> float:
        row = self.row("gemm", self.kernel_type(gemm.precision))
        n, k = max(gemm.n, MINIMUM_SIDE), max(gemm.k, MINIMUM_SIDE)
        flops = tokens * 2 * gemm.n * gemm.k * (1 + row.get("half_n_compute", 0) / n) * (1 + row.get("half_k_compute", 0) / k)
        size = (gemm.weight_bytes + tokens * 2 * (gemm.n + gemm.k)) * (1 + row.get("half_n_memory", 0) / n)
        peak = self.gpu.peak_flops(kernels.COMPUTE[row["dtype"] or "bf16"])
        return self.kernel(flops, size, row, peak, 1 if verifying and not self.ideal else None)

    def experts(self, moe: sharding.ShardMoe, every: float) -> float:
        dtype = {"mxfp4": "mxfp4_fp8" if self.gpu.native("mxfp4") else "mxfp4"}.get(moe.precision, self.kernel_type(moe.precision))
        row = self.row("moe", dtype, experts=None)
        if not self.ideal:
            own = kernels.find("moe", self.gpu.slug, self.s.engine.name, dtype, experts=moe.experts, hidden=moe.hidden)
            alike = own is not None and all(own.row[x] == row[x] for x in ("gpu", "engine", "dtype"))
            row = own.row if own is not None and alike else row
        pairs = every * moe.top_k / moe.ep_size
        touched = moe.experts_per_rank * (1 - (1 - moe.top_k / moe.experts) ** every)
        flops = pairs * (6 if moe.gated else 4) * moe.hidden * moe.intermediate
        flops *= 1 + row.get("half_width_compute", 0) / moe.intermediate
        size = touched * moe.weight_bytes_per_expert * (1 + row.get("half_width_memory", 0) / moe.intermediate)
        size += 2 * moe.hidden * (every / moe.ep_size + pairs)
        launch = row.get("launch_us", 0) * US
        peak = self.gpu.peak_flops(kernels.COMPUTE[row["dtype"] or "bf16"])
        busiest = 1 if self.ideal else moe.ep_size ** self.assumed["expert_imbalance_exponent"]
        return launch + busiest * (self.kernel(flops, size, row, peak) - launch)

    def ring(self, size: float, ranks: int, link: float) -> float:
        """All-reduce inside one server."""
        if ranks == 1:
            return 0.0
        ring = 2 * (ranks - 1) / ranks / link
        if self.ideal:
            return ring * size
        timed = max(n for n in (2, 4, 8) if n <= max(ranks, 2))
        eager, slug = self.s.engine.enforce_eager, self.gpu.slug
        if link < 100e9 <= gpus()[slug].scale_up.gb_s_per_direction_per_gpu * 1e9:  # an NVLink part without its link is a PCIe part
            slug = "l40s" if link < 50e9 else "rtx-pro-6000"
        row = (
            kernels.find("all_reduce", slug, self.s.engine.name, ranks=timed, eager=eager)
            or kernels.find("all_reduce", slug, self.s.engine.name, ranks=timed, eager=False)
            or kernels.find("all_reduce", slug, self.s.engine.name, ranks=4, eager=False)
        ).row
        rate = gpus()[row["gpu"]].scale_up.gb_s_per_direction_per_gpu * 1e9
        stretch = ring / (2 * (row["ranks"] - 1) / row["ranks"] / rate)
        floor = row["us"][0]
        us = [floor + max(0, x - floor) * stretch for x in row["us"]]
        if size > row["bytes"][-1]:
            return us[-1] * size / row["bytes"][-1] * US
        return float(np.exp(np.interp(math.log(size), np.log(row["bytes"]), np.log(us)))) * US

    def all_reduce(self, size: float, ranks: int, group: sharding.Group) -> float:
        server = self.s.hardware.gpus_per_node
        if not group.inter_node or ranks <= server:
            return self.ring(size, ranks, group.link_bytes_s if not group.inter_node else self.gpu.link_bytes_s)
        nodes = ranks / server
        share = 1 if self.ideal else self.assumed["network_share"]
        delay = 0 if self.ideal else 2 * self.assumed["network_us"] * US
        between = 2 * (nodes - 1) / nodes * (size / server) / (group.link_bytes_s * share)
        return self.ring(size, server, self.gpu.link_bytes_s) + delay + between

    def exchange(self, moe: sharding.ShardMoe, tokens: float, every: float) -> float:
        """Dispatch and combine, or gather and scatter inside a server: the dearer."""
        group, values = self.shard.ep_group, moe.hidden * moe.top_k
        if self.ideal:
            return (1 + 2) * tokens * values * (group.size - 1) / group.size / group.link_bytes_s
        leaves = group.inter_node and group.size > self.s.hardware.gpus_per_node
        nodes = math.ceil(group.size / self.s.hardware.gpus_per_node) if leaves else 1
        row = self.row("all_to_all", None, nodes=min((n for n in (1, 2, 4, 8) if n >= nodes), default=8))
        one_by_one = sum(row[f"{x}_us"] + row[f"{x}_us_per_million"] * tokens * values / 1e6 for x in ("dispatch", "combine")) * US
        if leaves or self.gpu.scale_up_domain_gpus > 16:  # between servers and inside racks tokens travel one by one
            return one_by_one
        return max(one_by_one, self.ring(every * moe.hidden * 2, group.size, self.gpu.link_bytes_s))

    def attention(self, a: sharding.ShardAttention, n: float, context: float, windowed: float) -> float:
        """Decode attention of one layer but for its launch, over this rank's sequences."""
        cache = "fp8" if self.s.precision.kv_cache in ("fp8", "int8", "int4") else "bf16"
        if a.mla:
            row = self.row("mla_decode", cache)
            start, flops = row.get("sequence_us", 0) * US, 2 * a.heads * (2 * a.kv_lora_rank + a.qk_rope_head_dim)
        else:
            row = self.row("decode_attention", cache, head_dim=a.head_dim)
            start, flops = row.get("sequence_head_us", 0) * US * a.kv_heads, 2 * a.heads * (a.head_dim + a.v_head_dim)
        read = a.kv_read_bytes_per_token / (self.gpu.memory_bandwidth_bytes_s * row["memory"])
        work = (1 + self.k) * flops / a.compression / (self.gpu.peak_flops("bf16") * row["compute"])
        token = max(read, work) if self.ideal else read + work
        if a.indexer_topk:
            keys = a.indexer_head_dim / self.gpu.memory_bandwidth_bytes_s
            scores = (1 + self.k) * 2 * a.indexer_heads * a.indexer_head_dim / self.gpu.peak_flops("fp8")
            indexing = max(keys, scores) * (1 if self.ideal else 2)
            most = n * self.dp * self.flow * a.indexer_topk / self.dp / self.flow
            return start * n + context * indexing + min(context, most) * token
        return start * n + (context if a.window is None else windowed) * token

    def launch(self, layer: sharding.ShardLayer, phase: str) -> float:
        """Launches of one layer's attention and recurrence; `phase` is decode or prefill."""
        us = 0.0
        cache = "fp8" if self.s.precision.kv_cache in ("fp8", "int8", "int4") else "bf16"
        if layer.attention and layer.attention.mla:
            us += self.row(f"mla_{phase}", cache).get("launch_us", 0)
        elif layer.attention:
            us += self.row(f"{phase}_attention", cache, head_dim=layer.attention.head_dim).get("launch_us", 0)
        if layer.recurrent:
            us += self.row("recurrent", None, phase="generation" if phase == "decode" else "context").get("launch_us", 0)
        return us * US

    def prefill(self, a: sharding.ShardAttention, new: int, cached: int) -> float:
        """Prefill attention of one chunk in one layer, token after token: half a token is the mean of its own and the next."""
        cache = "fp8" if self.s.precision.kv_cache in ("fp8", "int8", "int4") else "bf16"
        row = self.row("mla_prefill", cache) if a.mla else self.row("prefill_attention", cache, head_dim=a.head_dim)
        prefix = (a.kv_lora_rank + a.qk_rope_head_dim) * 2 if a.mla else a.kv_read_bytes_per_token
        window = a.indexer_topk or a.window or math.inf
        seen = np.minimum(cached + np.arange(new) + 0.5, window).sum()
        pair = 2 * a.heads * (a.head_dim + a.v_head_dim) / a.compression / (self.gpu.peak_flops("bf16") * row["compute"])
        reading = prefix * min(cached, window) / self.gpu.memory_bandwidth_bytes_s / (1 if self.ideal else 0.8)
        seconds = pair * seen * (1 + row.get("half_tokens", 0) / min(cached + new, window)) + reading
        if a.indexer_topk:
            scored = (cached + np.arange(new) + 0.5).sum()
            peak = self.gpu.peak_flops("fp8") / (1 if self.ideal else 2)
            seconds += 2 * a.indexer_heads * a.indexer_head_dim * scored / peak
        return float(seconds)

    def stage_s(self, stage: sharding.Stage, tokens: float, every: float, verifying: bool) -> float:
        """All kernels of one stage whose time depends on the number of tokens."""
        out: Kernels = []
        for layer in (x for x in stage.layers for _ in range(x.count)):
            out += [self.product(gemm, tokens, verifying) for gemm in layer.gemms]
            if layer.moe:
                out.append(self.experts(layer.moe, every))
            if not self.ideal:
                fused = 2 if self.s.engine.name == "trtllm" and self.tp > 1 else 0
                out.append((self.assumed["elementwise_kernels"] - fused) * self.assumed["elementwise_us"] * US)
                moved = tokens * self.assumed["elementwise_tensors"] * self.arch.hidden_size * 2
                out.append(moved / (self.assumed["elementwise_memory"] * self.gpu.memory_bandwidth_bytes_s))
                if layer.moe:
                    out.append(self.assumed["router_us"] * US)
            if self.tp > 1:
                out += [self.all_reduce(tokens * self.arch.hidden_size * 2, self.tp, self.shard.tp_group)] * layer.all_reduces
            if layer.moe and self.dp > 1:
                out.append(self.exchange(layer.moe, tokens, every))
        return sum(out)

    def __call__(self, shape: StepShape) -> float:
        """Seconds of the step."""
        n, chunks, new = shape.decode_sequences, shape.chunks, sum(c[0] for c in shape.chunks)
        verify = shape.verify_tokens if chunks else n * self.k
        rows = shape.logit_rows if chunks else n
        self.flow = min(self.pp, n + len(chunks))
        longest = max((c[0] for c in chunks), default=0)
        share = self.dp * self.flow
        own = math.ceil(n / self.dp) * (1 + (verify / n if n else 0))
        tokens = (own + (new if self.dp == 1 else max(math.ceil(new / self.dp), longest))) / self.flow
        every = (n + verify + new) / self.flow
        stages = [self.stage_s(stage, tokens, every, verify > 0) for stage in self.shard.stages]
        seconds = sum(stages)
        if self.pp > 1:
            hand = tokens * self.arch.hidden_size * 2 / self.shard.pp_group.link_bytes_s
            seconds += (self.pp - 1) * (hand + (0 if self.ideal else self.assumed["p2p_us"] * US))
            seconds += max(0.0, self.flow * max(stages) - sum(stages))
        last = self.shard.stages[-1]
        if last.lm_head:
            out = (rows + verify) / share
            seconds += self.product(last.lm_head, out, verify > 0)
            if not self.ideal:
                logits = out * self.shard.vocab_size * self.assumed["sampling_bytes_per_logit"]
                seconds += logits / (0.8 * self.gpu.memory_bandwidth_bytes_s)
        launches: Kernels = [0.0, 0.0]
        each_chunk = [0.0] * len(chunks)
        for layer in (x for stage in self.shard.stages for x in stage.layers for _ in range(x.count)):
            if n:
                launches[0] += self.launch(layer, "decode")
                if layer.attention:
                    seconds += self.attention(
                        layer.attention, n / share, shape.context_tokens / share, shape.windowed_context_tokens / share
                    )
                if layer.recurrent:
                    row = self.row("recurrent", None, phase="generation")
                    state = 2 * layer.recurrent.state_bytes * (1 + self.k) * n / share
                    seconds += state / (self.gpu.memory_bandwidth_bytes_s * row["memory"])
            if chunks:
                launches[1] += self.launch(layer, "prefill")
                if layer.attention:
                    each_chunk = [t + self.prefill(layer.attention, *c) for t, c in zip(each_chunk, chunks, strict=True)]
                if layer.recurrent:
                    row = self.row("recurrent", None, phase="context")
                    flops = 8 * layer.recurrent.state_bytes / 4 * max(new / self.dp, longest if self.dp > 1 else 0)
                    seconds += flops / self.flow / (self.gpu.peak_flops("bf16") * row["compute"])
        if chunks:
            seconds += max(sum(each_chunk) / self.dp, max(each_chunk)) / self.flow
        seconds += max(launches) if self.s.engine.name == "vllm" else sum(launches)
        return self.hosted(shape, seconds, new)

    def hosted(self, shape: StepShape, seconds: float, new: int) -> float:
        """With the host's work, the drafting and the launches that a step cannot outrun."""
        n, chunks, engine = shape.decode_sequences, shape.chunks, self.s.engine
        if self.ideal or not self.main:
            return seconds + self.drafting(shape, seconds)
        host = kernels.host(engine.name, engine.version, engine.async_scheduling, self.gpu.slug)
        plain_kernels = seconds
        seconds += max(host["step_us"] * US, self.profile.host_s) + self.profile.drafting_host_s + n * host["sequence_us"] * US
        seconds += self.drafting(shape, plain_kernels)
        layers = self.arch.num_hidden_layers
        uncaptured = math.ceil((n + new) / self.dp) > GRAPHS[engine.name]  # each data-parallel rank captures its own
        launched = layers * self.assumed["eager_layer_us"] * US if engine.enforce_eager or uncaptured else 0
        if chunks:
            uncaptured &= engine.name == "vllm"
            launched = layers * self.assumed["dispatch_layer_us"] * US if uncaptured else 0
        return max(seconds, launched, (n + len(chunks)) * host["overlapped_sequence_us"] * US / self.dp)

    def drafting(self, shape: StepShape, _seconds: float) -> float:
        """k passes of the drafter over the sequences, one over the chunks; or the user's share of a step without drafts."""
        n, s = shape.decode_sequences, self.s.speculative
        if s is None or not self.main:
            return 0.0
        if self.profile.draft_cost_fraction is not None:
            if not n:
                return 0.0
            plain = StepOracle(self.s.model_copy(update={"speculative": None}))
            plain.main = False
            return self.k * self.profile.draft_cost_fraction * plain(shape._replace(chunks=(), verify_tokens=0))
        model = architecture.of(Model(name=s.draft_model)) if s.draft_model else None
        found = drafter(s.method, self.arch, self.k, model)
        if found is None:
            return 0.0
        precision = self.s.precision if s.method in ("draft_model", "mtp") else self.s.precision.model_copy(update={"weights": "bf16"})
        layout = self.s.parallel.model_copy(update={"pipeline_parallel_size": 1})
        one = StepOracle(self.s.model_copy(update={"parallel": layout, "precision": precision}), found.pass_)
        passes = {"medusa": 1}.get(s.method, self.k)
        seconds = passes * one(StepShape(n, shape.context_tokens, shape.windowed_context_tokens, (), n)) if n else 0.0
        return seconds + (one(StepShape(chunks=shape.chunks)) if shape.chunks else 0.0)
