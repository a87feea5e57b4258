import math
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from planner import speculation as spec
from planner.problems import InputError
from planner.scenario import Speculative

CHAPTER = {
    (2, 0.6): (1.96, 1.78),
    (2, 0.8): (2.44, 2.22),
    (2, 0.9): (2.71, 2.46),
    (4, 0.6): (2.31, 1.92),
    (4, 0.8): (3.36, 2.80),
    (4, 0.9): (4.10, 3.41),
    (8, 0.6): (2.47, 1.77),
    (8, 0.8): (4.33, 3.09),
    (8, 0.9): (6.13, 4.38),
}


@pytest.mark.parametrize(("k", "alpha"), CHAPTER)
def test_closed_forms_come_out_to_the_digit(k, alpha):
    tokens, speedup = CHAPTER[k, alpha]
    rates = spec.geometric_rates(alpha, k)
    assert round(spec.acceptance_length(rates), 2) == tokens
    assert spec.acceptance_length(rates) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))
    assert round(spec.closed_form_speedup(rates), 2) == speedup


def models(seed: int, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """A target and a draft that agrees with it in part."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(size), size)
    return target, 0.5 * target + 0.5 * rng.dirichlet(np.ones(size), size)


def transition_p_value(tokens: np.ndarray, model: np.ndarray) -> float:
    """Chi-square p-value that `tokens` are a walk of `model`, all rows pooled."""
    counts = np.zeros(model.shape)
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    expected = counts.sum(axis=1, keepdims=True) * model
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), model.size - len(model)))


@pytest.mark.parametrize("k", [1, 4])
def test_the_rule_leaves_the_targets_distribution_unchanged(k):
    target, draft = models(seed=3)
    exact = spec.decode(np.random.default_rng(11), target, draft, k, steps=8_000 // k)
    assert transition_p_value(exact.tokens, target) > 0.01
    assert transition_p_value(exact.tokens, draft) < 1e-6


def test_accepting_every_draft_emits_the_drafts_text():
    target, draft = models(seed=3)
    swapped = spec.decode(np.random.default_rng(11), target, draft, 7, steps=1_000, verify="accept_all")
    drafted = swapped.tokens.reshape(1_000, 8)[:, :7]
    counts = np.zeros(draft.shape)
    np.add.at(counts, (drafted[:, :-1].ravel(), drafted[:, 1:].ravel()), 1)
    rows = counts.sum(axis=1, keepdims=True)
    p_value = lambda model: stats.chi2.sf(((counts - rows * model) ** 2 / (rows * model)).sum(), model.size - len(model))  # noqa: E731
    assert p_value(draft) > 0.01
    assert p_value(target) < 1e-6
    assert swapped.acceptance_length == 8


def test_acceptance_is_the_overlap_of_the_two_distributions():
    target = np.tile([0.5, 0.3, 0.2], (3, 1))
    draft = np.tile([0.2, 0.3, 0.5], (3, 1))
    alpha = np.minimum(target[0], draft[0]).sum()
    assert alpha == pytest.approx(0.7)
    run = spec.decode(np.random.default_rng(0), target, draft, 3, steps=4_000)
    assert run.acceptance_rates == pytest.approx(spec.geometric_rates(alpha, 3), abs=0.025)
    assert run.acceptance_length == pytest.approx(spec.acceptance_length(spec.geometric_rates(alpha, 3)), rel=0.02)


def test_identical_models_accept_everything_and_disjoint_ones_nothing():
    same = np.full((2, 2), 0.5)
    assert spec.decode(np.random.default_rng(0), same, same, 4, steps=50).acceptance_length == 5
    left, right = np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))
    run = spec.decode(np.random.default_rng(0), left, right, 4, steps=50)
    assert run.acceptance_length == 1
    assert not run.tokens.any()


@pytest.mark.parametrize("bad", [np.full((2, 3), 1 / 3), np.array([[0.5, 0.6], [0.5, 0.5]])])
def test_models_must_be_distributions(bad):
    with pytest.raises(InputError, match="draft has"):
        spec.decode(np.random.default_rng(0), np.full((2, 2), 0.5), bad, 2, steps=1)


def test_decode_steps_follow_the_acceptance_length():
    rng = np.random.default_rng(5)
    tokens = np.full(4_000, 250)
    for alpha in (0.6, 0.8):
        rates = spec.geometric_rates(alpha, 4)
        steps = spec.draw_decode_steps(rng, tokens, rates)
        per_step = tokens.sum() / steps.sum()
        assert per_step < spec.acceptance_length(rates)
        assert per_step == pytest.approx(spec.acceptance_length(rates), rel=0.015)


def test_decode_steps_match_a_walk_of_single_steps():
    rates = (0.7, 0.3, 0.25)
    rng = np.random.default_rng(1)
    walked = []
    for _ in range(1_500):
        left, steps = 37, 0
        while left > 0:
            left -= 1 + int(np.sum(rng.random() < np.array(rates)))
            steps += 1
        walked.append(steps)
    drawn = spec.draw_decode_steps(rng, np.full(1_500, 37), rates)
    assert stats.ks_2samp(walked, drawn).pvalue > 0.01


def test_decode_steps_at_the_edges():
    rng = np.random.default_rng(0)
    tokens = np.array([0, 1, 5, 1_000])
    assert spec.draw_decode_steps(rng, tokens, ()).tolist() == tokens.tolist()
    assert spec.draw_decode_steps(rng, tokens, (0.0, 0.0)).tolist() == tokens.tolist()
    assert spec.draw_decode_steps(rng, tokens, (1.0, 1.0, 1.0)).tolist() == [0, 1, 2, 250]
    assert tokens.tolist() == [0, 1, 5, 1_000]


def test_profile_of_each_way_to_state_acceptance():
    assert spec.profile(None) is spec.NO_SPECULATION
    assert spec.profile(None).acceptance_length == 1
    listed = spec.profile(Speculative(num_speculative_tokens=2, acceptance_rates=(0.7, 0.3)))
    assert listed.acceptance_length == pytest.approx(2.0)
    constant = spec.profile(Speculative(num_speculative_tokens=4, acceptance_rate=0.8))
    assert round(constant.acceptance_length, 2) == 3.36
    assert constant.verify_tokens_per_sequence == 5
    measured = spec.profile(Speculative(method="eagle3", num_speculative_tokens=3))
    assert measured.kind == "measured"
    assert measured.acceptance_rates == pytest.approx((0.5953, 0.5953 * 0.5833, 0.5953 * 0.5833 * 0.6364))
    assert spec.profile(Speculative(method="ngram")).draft_passes == 0
    assert spec.profile(Speculative(method="medusa", acceptance_rate=0.6)).draft_passes == 1


def test_accept_all_is_fast_and_says_what_it_costs():
    chosen = Speculative(num_speculative_tokens=4, acceptance_rate=0.5, verify="accept_all")
    assert spec.profile(chosen).acceptance_length == 5
    (problem,) = spec.problems(chosen)
    assert "the output is the draft's" in problem.message
    assert spec.problems(Speculative(acceptance_rate=0.5)) == ()


def test_an_acceptance_from_another_model_is_said():
    (problem,) = spec.problems(Speculative())
    assert (problem.code, problem.severity) == ("assumed_acceptance", "info")
    assert "Llama-3.1-8B" in problem.message


def test_presets_differ_between_code_and_prose():
    prose, code = (spec.acceptance_length(spec.preset_rates("ngram", text, 5)) for text in ("prose", "code"))
    assert prose == pytest.approx(1.36, abs=0.01)
    assert code == pytest.approx(2.03, abs=0.01)
    for method in ("eagle3", "ngram", "mtp", "draft_model"):
        for text in spec.TEXTS:
            rates = spec.preset_rates(method, text, 12)
            assert len(rates) == 12
            assert list(rates) == sorted(rates, reverse=True)
            Speculative(method=method, num_speculative_tokens=12, acceptance_rates=rates)


def test_the_kind_of_text_chooses_the_measured_acceptance():
    def of(**chosen):
        return spec.profile(Speculative(num_speculative_tokens=5, **chosen))

    for text in spec.TEXTS:
        assert of(method="ngram", text=text).acceptance_rates == pytest.approx(spec.preset_rates("ngram", text, 5), abs=1e-4)
    assert of(method="ngram").acceptance_rates == of(method="ngram", text="prose").acceptance_rates
    assert of(method="ngram", text="code").acceptance_length > of(method="ngram").acceptance_length + 0.5
    assert of(method="ngram", text="code").source.endswith("(on code)")
    only_prose = of(method="mtp", text="code")
    assert only_prose.acceptance_rates == of(method="mtp").acceptance_rates
    assert "prose, as code was not measured" in only_prose.source
    assert of(method="ngram", text="code", acceptance_rate=0.5).acceptance_rates == spec.geometric_rates(0.5, 5)
    assert set(spec.TEXTS) == set(get_args(Speculative.model_fields["text"].annotation))


@pytest.mark.parametrize(
    ("speculative", "message"),
    [
        (Speculative(method="medusa"), "no measured acceptance"),
        (Speculative(method="draft_model", acceptance_rate=0.8), "needs speculative.draft_model"),
    ],
)
def test_what_is_not_known_is_asked_for(speculative, message):
    with pytest.raises(InputError, match=message):
        spec.profile(speculative)


@pytest.mark.parametrize("rates", [(1.0, 1.0, 1.0), (0.0, 0.0), (0.7, 0.5, 0.3)])
def test_answers_of_millions_of_tokens_are_drawn_in_no_time(rates: tuple[float, ...]) -> None:
    tokens, n = 1_000_000, 2000
    steps = spec.draw_decode_steps(np.random.default_rng(1), np.full(n, tokens), rates)
    chance = -np.diff([1.0, *rates, 0.0])
    emitted = np.arange(1, len(rates) + 2)
    mean = emitted @ chance
    spread = math.sqrt(tokens * (emitted**2 @ chance - mean**2) / mean**3)  # of a renewal process at its tokens
    assert abs(steps.mean() - tokens / mean) < 4 * spread / math.sqrt(n) + 1
    assert steps.std() == pytest.approx(spread, rel=0.1, abs=0.5)
    assert steps.min() * emitted[-1] >= tokens
