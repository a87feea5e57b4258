import pytest

from planner.architecture import from_hf_config
from planner.architecture.drafter import drafter
from planner.architecture.model import Tensor
from planner.problems import InputError

LLAMA_8B = from_hf_config(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    },
    "llama-3.1-8b",
)


def params(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.params for t in tensors)


def test_an_eagle3_head_weighs_what_the_published_one_does():
    head = drafter("eagle3", LLAMA_8B, 3)
    assert head is not None
    attention = 2 * 4096 * (4096 + 2 * 1024) + 4096 * 4096
    assert params(head.resident) == pytest.approx(3 * 4096 * 4096 + 32_000 * 4096 + attention + 3 * 4096 * 14336, rel=1e-4)
    assert head.kv_bytes_per_token() * 32 == LLAMA_8B.kv_bytes_per_token(), "one more KV layer"


def test_an_eagle_head_reads_the_targets_output_matrix_without_storing_it():
    head = drafter("eagle", LLAMA_8B, 3)
    assert head is not None
    assert head.pass_.total_params - params(head.resident) == 128256 * 4096
    assert params(head.resident) < 0.1 * LLAMA_8B.total_params


def test_medusa_has_heads_and_no_cache():
    heads = drafter("medusa", LLAMA_8B, 4)
    assert heads is not None
    assert params(heads.resident) == 4 * 4096 * (4096 + 128256)
    assert heads.kv_bytes_per_token() == 0


def test_ngrams_cost_no_memory_and_a_draft_model_all_of_its_own():
    assert drafter("ngram", LLAMA_8B, 3) is None
    own = drafter("draft_model", LLAMA_8B, 3, LLAMA_8B)
    assert own is not None
    assert params(own.resident) == LLAMA_8B.total_params
    assert own.kv_bytes_per_token("fp8") == LLAMA_8B.kv_bytes_per_token("fp8")


@pytest.mark.parametrize("method", ["mtp", "draft_model"])
def test_what_the_model_lacks_is_said(method):
    with pytest.raises(InputError, match=method):
        drafter(method, LLAMA_8B, 3)
