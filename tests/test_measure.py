"""`measure` against a real streaming server whose delays are known."""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streaming_server import Behaviour, Server

from planner.command.measuring import add_commands
from planner.measure import charts, rows
from planner.measure.endpoint import Endpoint
from planner.measure.experiment import Experiment, Options, Run, measure
from planner.measure.prompts import Scale, fit
from planner.measure.records import distribution, tpot
from planner.measure.stream import Answer, StreamError, events
from planner.measure.summary import document, summarize
from planner.problems import InputError

ROOT = Path(__file__).parent.parent
LATE_S = 0.02
"""What building a request, a loopback hop and a wake-up may add at best: the stated tolerance of TTFT and E2E."""
EARLY_S = 0.002
REQUEST_KEYS = ("prompt_tokens", "output_tokens", "cached_tokens", "ttft_s", "ttft_answer_s", "tpot_s", "e2e_s", "error")
ENDPOINT = ("max_tokens", "timeout_s", "retries", "extra_body")


@pytest.fixture(autouse=True, scope="module")
def no_certificates() -> Iterator[None]:
    """Every client reads the machine's certificates (50 ms); plain HTTP to this machine needs none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
        yield


def run(behaviour: Behaviour, api: str = "openai", **options: object) -> tuple[Run, Server]:
    """A run against a fresh server: two requests of 50 tokens unless told otherwise."""
    endpoint = {"max_tokens": 12, "timeout_s": 10} | {k: options.pop(k) for k in ENDPOINT if k in options}
    options = {"prompt_lengths": (50,), "repeats": 2, "prefix": False} | options
    with Server(behaviour) as server:
        return measure(Endpoint(server.url, "test-model", api, **endpoint), Options(**options)), server


def agree(found: Run, server: Server, name: str, least_s: float, late_s: float = LATE_S) -> None:
    """The client's figure of the length sweep against the server's own clock.

    No request may seem faster than the injected delay, whatever the machine does; and the best of them must come within
    the tolerance of what the server really did (a busy machine wakes sleepers late, in the server as in the client).
    """
    alone = [r for r in found.requests if r.experiment == "lengths"]
    pairs = [(getattr(r, name), getattr(t, name)) for r, t in zip(alone, server.truths[2:], strict=False)]
    assert pairs
    # A first token seen late makes the others look early: TPOT may seem faster than it was by that much.
    early_s = EARLY_S if name != "tpot_s" else least_s / 2
    assert all(measured is not None and measured >= least_s - early_s for measured, _ in pairs), (least_s, pairs)
    assert min(abs(measured - true) for measured, true in pairs) <= late_s, pairs


def command(*words: str, capsys: pytest.CaptureFixture[str] | None = None) -> int:
    """One command as the command line runs it."""
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    arguments = parser.parse_args([str(word) for word in words])
    return arguments.run(arguments)


# What is true of one request


@pytest.mark.parametrize("api", ["openai", pytest.param("anthropic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("tokens_per_event", [1, 4])
def test_known_delays_come_out(api: str, tokens_per_event: int) -> None:
    behaviour = Behaviour(ttft_base_s=0.04, gap_s=0.01, tokens_per_event=tokens_per_event)
    found, server = run(behaviour, api, max_tokens=24, repeats=3)
    count = 24 // tokens_per_event
    assert [r.error for r in found.requests] == [None] * 3
    agree(found, server, "ttft_s", 0.04)
    agree(found, server, "ttft_answer_s", 0.04)
    agree(found, server, "tpot_s", (count - 1) * 0.01 / 23, LATE_S / 23)
    agree(found, server, "e2e_s", 0.04 + (count - 1) * 0.01)
    for request in found.requests:
        assert (request.output_tokens, request.events, request.estimated) == (24, count, False)
        assert request.e2e_s == pytest.approx(request.ttft_s + 23 * request.tpot_s)


def test_the_chapter_s_example() -> None:
    """61 in, 348 out, TTFT 920 ms, 11.85 s, 212 events.

    The chapter prints 31.4 ms and 31.8 tokens/s; the inputs it prints beside them give 31.5 and 31.75.
    """
    answer = Answer()
    for i in range(212):
        answer.anthropic(
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "some words"}}, 0.92 + i * (11.85 - 0.92) / 211
        )
    answer.anthropic({"type": "message_start", "message": {"usage": {"input_tokens": 61, "output_tokens": 1}}}, 0.9)
    answer.anthropic({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 348}}, 11.9)
    tokens, estimated = answer.counted_tokens()
    assert (answer.prompt_tokens, tokens, estimated, answer.events) == (61, 348, False, 212)
    assert answer.first_s == pytest.approx(0.92)
    assert answer.last_s == pytest.approx(11.85)
    each_s = answer.tpot_s(tokens)
    assert each_s == pytest.approx(0.0314, abs=1e-4)
    assert 1 / each_s == pytest.approx(31.8, abs=0.06)
    assert 1.6 * each_s < (11.85 - 0.92) / 211, "time per event would overstate it"


def test_time_per_token_needs_two_tokens() -> None:
    assert tpot(1.0, 2.0, 1) is None
    assert tpot(1.0, 2.0, None) is None
    assert tpot(None, 2.0, 5) is None
    assert tpot(1.0, 2.0, 5) == 0.25


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "tags", pytest.param("anthropic", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_streamed_thinking_gives_two_ttfts(field: str) -> None:
    behaviour = Behaviour(ttft_base_s=0.03, gap_s=0.01, thinking_tokens=8, thinking_field=field)
    found, server = run(behaviour, "anthropic" if field == "anthropic" else "openai", max_tokens=16, repeats=2)
    assert [r.error for r in found.requests] == [None, None]
    agree(found, server, "ttft_s", 0.03)
    agree(found, server, "ttft_answer_s", 0.03 + 8 * 0.01)
    agree(found, server, "tpot_s", 0.01, LATE_S / 15)


@pytest.mark.slow
def test_hidden_thinking_is_in_ttft_and_not_in_tpot() -> None:
    found, server = run(Behaviour(gap_s=0.01, thinking_tokens=8, thinking_field="hidden"), max_tokens=16, repeats=2)
    assert {(r.output_tokens, r.thinking_tokens) for r in found.requests} == {(16, 8)}
    agree(found, server, "ttft_s", 0.02 + 8 * 0.01)
    agree(found, server, "tpot_s", 0.01, LATE_S / 7)
    assert any("not streamed" in note for note in summarize(found)["notes"])


@pytest.mark.parametrize(("tokens_per_event", "near"), [(1, 0.05), (5, 0.35)])
def test_without_usage_tokens_are_estimated_and_said_so(tokens_per_event: int, near: float) -> None:
    found, _ = run(Behaviour(usage=False, tokens_per_event=tokens_per_event), max_tokens=40, repeats=1)
    (request,) = found.requests
    assert request.estimated
    assert request.output_tokens == pytest.approx(40, rel=near)
    assert request.cached_tokens is None
    assert any("estimates" in note for note in summarize(found)["notes"])


def test_keep_alive_comments_and_empty_deltas_are_no_tokens() -> None:
    found, server = run(Behaviour(ttft_base_s=0.05, keep_alive_comments=True), repeats=2)
    assert {r.events for r in found.requests} == {12}
    agree(found, server, "ttft_s", 0.05)


@pytest.mark.slow
def test_an_end_mark_or_a_finish_reason_is_enough() -> None:
    for behaviour in (Behaviour(finish=False, usage=False), Behaviour(done=False, usage=False), Behaviour(finish=False, done=False)):
        found, _ = run(behaviour, repeats=1)
        assert [r.error for r in found.requests] == [None]


def test_a_split_event_and_parts_of_text() -> None:
    async def lines():
        for line in ['data: {"choices":', 'data: [{"delta": {"content": [{"type": "text", "text": "hi"}]}}]}', "", "data: [DONE]", ""]:
            yield line

    async def read() -> Answer:
        answer = Answer()
        async for event in events(lines(), answer):
            answer.openai(event, 1.0)
        return answer

    answer = asyncio.run(read())
    assert (answer.events, answer.chars, answer.done) == (1, 2, True)


# What goes wrong


@pytest.mark.parametrize(
    "behaviour", [Behaviour(cut_after_events=5), Behaviour(finish=False, done=False, usage=False), Behaviour(cut_after_events=12)]
)
def test_a_cut_stream_is_an_error_that_keeps_what_it_showed(behaviour: Behaviour) -> None:
    found, server = run(behaviour, repeats=1)
    (request,) = found.requests
    assert request.error
    agree(found, server, "ttft_s", 0.02, late_s=0.1)
    summary = summarize(found)
    assert (summary["ok"], summary["failed"]) == (0, 1)
    assert summary["ttft_s"]["n"] == summary["tpot_s"]["n"] == 0, "never averaged away"
    assert sum(e["count"] for e in summary["errors"]) == 3, "the two calibration requests failed as well"
    assert document(found)["rows"] == []


@pytest.mark.slow
def test_a_stalled_stream_times_out_with_its_first_token() -> None:
    found, _ = run(Behaviour(stall_after_events=3), repeats=1, timeout_s=0.2)
    (request,) = found.requests
    assert "timed out after 0.2 s with 3 events" in request.error
    assert 0.02 - EARLY_S <= request.ttft_s < 0.2


@pytest.mark.parametrize("api", ["openai", pytest.param("anthropic", marks=pytest.mark.slow)])
def test_errors_inside_a_stream(api: str) -> None:
    found, _ = run(Behaviour(error_in_stream_after=2), api, repeats=1)
    assert "the server reported an error in the stream" in found.requests[0].error


def test_a_turned_away_request_is_repeated_and_counted() -> None:
    statuses = [(200, {}), (200, {}), (429, {"retry-after": "0.1"}), (429, {"retry-after": "0"})]
    found, server = run(Behaviour(statuses=statuses), repeats=2)
    first, second = found.requests
    assert (first.error, first.retries, second.retries) == (None, 2, 0)
    assert first.retry_wait_s == pytest.approx(0.1)
    assert first.ttft_s < 0.1, "the wait is not in TTFT"
    summary = summarize(found)
    assert (summary["retried"], summary["retries"], summary["failed"]) == (1, 2, 0)
    assert len(server.bodies) == 6


def test_other_statuses_are_results_not_retries() -> None:
    statuses = [(200, {}), (200, {}), (500, {}), (200, {}), (429, {"retry-after": "3600"})]
    found, server = run(Behaviour(statuses=statuses), repeats=3)
    assert [bool(r.error) for r in found.requests] == [True, False, True]
    assert found.requests[0].error.startswith("HTTP 500")
    assert "asked to wait 3600 s" in found.requests[2].error
    summary = summarize(found)
    assert (summary["ok"], summary["failed"]) == (1, 2)
    assert summary["ttft_s"]["n"] == 1
    assert len(server.bodies) == 5


def test_nobody_there() -> None:
    with Server(Behaviour()) as server:
        url = server.url
    found = measure(Endpoint(url, "m", timeout_s=2), Options(prompt_lengths=(50,), repeats=1, prefix=False))
    assert found.requests[0].error.startswith("connection failed")


def test_what_a_server_does_not_take_is_sent_differently() -> None:
    def refuse(body: dict) -> tuple[int, str] | None:
        if "max_tokens" in body:
            return 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return (400, "unknown field: stream_options") if "stream_options" in body else None

    found, server = run(Behaviour(refuse=refuse), repeats=1)
    assert found.requests[0].error is None
    assert set(server.bodies[-1]) == {"model", "stream", "messages", "max_completion_tokens"}


def test_an_address_without_a_path_works_with_and_without_v1() -> None:
    for prefix in ("/v1", ""):
        with Server(Behaviour(prefix=prefix)) as server:
            root = server.url.removesuffix("/v1")
            found = measure(Endpoint(root, "m", max_tokens=4), Options(prompt_lengths=(50,), repeats=1, prefix=False))
        assert found.requests[0].error is None


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_missing_client_is_one_sentence(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, api, None)
    with pytest.raises(InputError, match=f"needs the {api} client, which is not installed; run `pip install {api}`"):
        measure(Endpoint("http://127.0.0.1:1/v1", "m", api), Options())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prompt_lengths": ()}, "names no length"),
        ({"prompt_lengths": (0,)}, "--prompt-lengths has 0"),
        ({"repeats": 0}, "--repeats is 0"),
        ({"concurrency": 1, "rate": 1.0}, "exclude each other"),
        ({"rate": float("nan")}, "--rate is nan"),
        ({"duration_s": 1e9}, "--duration is 1e"),
        ({"concurrency": 10**6}, "--concurrency is 1000000"),
        ({"max_requests": 0}, "--max-requests is 0"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Options(**options)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://", "http://x:99999999/v1", ""])
def test_wrong_addresses_are_one_sentence(url: str) -> None:
    with pytest.raises(InputError, match="is not an http or https address"):
        measure(Endpoint(url, "m"), Options())


# Prompts, prefixes and loads


def test_prompt_lengths_are_hit_by_the_server_s_own_count() -> None:
    found, server = run(Behaviour(ttft_base_s=0.0, gap_s=0.0), prompt_lengths=(50, 500, 5000), repeats=2, max_tokens=2)
    for request in found.requests:
        assert request.prompt_tokens == pytest.approx(request.target_prompt_tokens, rel=0.02)
        assert request.cached_tokens == 0
    users = [body["messages"][-1]["content"] for body in server.bodies]
    starts = {" ".join(user.split()[:6]) for user in users}
    assert len(starts) == len(users), "no two prompts share a beginning"
    assert [r.target_prompt_tokens for r in found.requests] == [50, 500, 5000, 50, 500, 5000]


def test_the_scale_from_calibration() -> None:
    assert fit([(24, 60), (120, 156)]) == Scale(1.0, 36.0, True)
    assert fit([]) == Scale()
    one = fit([(24, 60)])
    assert one.measured
    assert one.tokens(24) == 60
    assert fit([(24, 60), (120, 60)]).tokens_per_word > 0
    assert Scale(1.5, 30).words(10) == 1


@pytest.mark.slow
def test_ttft_grows_with_the_prompt_and_not_with_a_cached_prefix() -> None:
    behaviour = Behaviour(ttft_base_s=0.01, ttft_per_token_s=2e-4, gap_s=0.0)
    found, _ = run(behaviour, prompt_lengths=(100, 1000), repeats=2, prefix=True, max_tokens=2)
    summary = summarize(found)
    short, long = summary["by_prompt_length"]
    assert long["ttft_s"]["min"] - short["ttft_s"]["min"] == pytest.approx(0.18, abs=0.05)
    prefix = summary["prefix"]
    assert prefix["pairs"] == 2
    assert prefix["cached_tokens"] == pytest.approx(1000, rel=0.1)
    assert prefix["cold_cached_tokens"] == 0
    assert prefix["saved_s"] == pytest.approx(0.2, abs=0.08)
    assert "came from the prefix cache" in prefix["sentence"]
    assert [r.cached_tokens > 0 for r in found.requests if r.experiment == "prefix"] == [False, True, False, True]


@pytest.mark.slow
def test_the_prefix_is_marked_for_anthropic_and_counted() -> None:
    found, server = run(Behaviour(gap_s=0.0), "anthropic", prompt_lengths=(300,), repeats=1, prefix=True, max_tokens=2)
    warm = found.requests[-1]
    assert warm.cached_tokens > 250
    assert warm.prompt_tokens == pytest.approx(300, rel=0.1), "cached tokens are part of the prompt"
    assert server.bodies[-1]["system"][0]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.slow
def test_a_closed_loop_is_bounded_and_reports_throughput() -> None:
    behaviour = Behaviour(ttft_base_s=0.02, gap_s=0.01)
    found, _ = run(behaviour, repeats=1, max_tokens=9, concurrency=4, duration_s=0.5)
    load = summarize(found)["load"]
    assert load["kind"] == "concurrency"
    assert load["mean_in_flight"] == pytest.approx(4, rel=0.3), "Little's law"
    assert load["output_tokens_per_s"] == pytest.approx(9 * load["requests_per_s"])
    assert load["duration_s"] <= 0.5 + load["e2e_s"]["max"] + 0.2
    capped, _ = run(behaviour, repeats=1, max_tokens=2, concurrency=2, duration_s=5.0, max_requests=5)
    assert sum(r.experiment == "load" for r in capped.requests) == 5


@pytest.mark.slow
def test_an_open_loop_shows_the_queue() -> None:
    """One slot of 50 ms served at 40 requests/s: the queue must appear in TTFT, not be waited out by the client."""
    found, _ = run(Behaviour(ttft_base_s=0.05, gap_s=0.0, slots=1), repeats=1, max_tokens=1, rate=40.0, duration_s=0.4, seed=1)
    load = [r for r in found.requests if r.experiment == "load"]
    assert 6 <= len(load) <= 30
    assert max(r.ttft_s for r in load) > 0.15
    assert all(r.ttft_s >= 0.05 - EARLY_S for r in load)
    assert summarize(found)["load"]["requests_per_s"] <= 1.05 / 0.05


# What is kept


@pytest.mark.slow
def test_stopping_keeps_what_was_measured() -> None:
    with Server(Behaviour(gap_s=0.02)) as server:
        found = Run(Endpoint(server.url, "m", max_tokens=20), Options(prompt_lengths=(50,), repeats=50, prefix=False))

        def stop_soon(run: Run) -> None:
            if len(run.requests) == 2:
                asyncio.get_running_loop().call_later(0.2, experiment.stop)

        experiment = Experiment(found, stop_soon)
        asyncio.run(experiment.drive())
    summary = summarize(found)
    assert found.stopped
    assert not found.finished
    assert 2 <= summary["ok"] < 5
    assert found.requests[-1].error.startswith("stopped before the answer was complete")
    assert summary["failed"] == 1
    assert "stopped early" in summary["notes"][-1]


@pytest.mark.slow
def test_stopping_a_load_keeps_every_client_s_last_request() -> None:
    with Server(Behaviour(gap_s=0.02)) as server:
        options = Options(prompt_lengths=(50,), repeats=1, prefix=False, concurrency=5, duration_s=60)
        found = Run(Endpoint(server.url, "m", max_tokens=20), options)
        experiment = Experiment(found, lambda run: experiment.stop() if sum(r.experiment == "load" for r in run.requests) >= 7 else None)
        asyncio.run(experiment.drive())
    load = [r for r in found.requests if r.experiment == "load"]
    assert sum(r.ok for r in load) >= 5
    assert all(r.ok or r.error.startswith("stopped") for r in load)


def test_json_has_the_names_of_the_contract_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "sk-live-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    outs = [tmp_path / name for name in ("run.json", "run.jsonl", "run.csv", "run.vl.json")]
    statuses = [(200, {}), (200, {}), (200, {}), (401, {})]
    with Server(Behaviour(statuses=statuses)) as server:
        words = ["--base-url", server.url + "?token=secret", "--model", "m", "--prompt-lengths", "50,60", "--repeats", "1"]
        status = command("measure", *words, "--max-tokens", "4", "--no-prefix", "--json", *[w for out in outs for w in ("--out", str(out))])
    assert status == 0
    assert server.headers[0]["authorization"] == f"Bearer {key}"
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [set(REQUEST_KEYS) <= set(request) for request in found["requests"]] == [True, True]
    assert found["requests"][0]["error"] is None
    assert (
        found["requests"][1]["error"]
        == "HTTP 401: told to fail; you sent [key]; set OPENAI_API_KEY in the environment to a key of this server"
    )
    assert found["endpoint"]["base_url"] == server.url
    everything = printed.out + printed.err + "".join(out.read_text() for out in outs)
    assert key not in everything
    assert "0123456789abcdef" not in everything
    assert "secret" not in everything
    assert json.loads(outs[0].read_text())["requests"] == found["requests"]
    assert len(outs[1].read_text().splitlines()) == 2
    assert rows.from_csv(outs[2].read_text())[0]["load_value"] == 1


@pytest.mark.slow
def test_rows_have_the_columns_of_the_measured_table() -> None:
    found, _ = run(Behaviour(), repeats=2, concurrency=2, duration_s=0.2, prefix=True)
    text = rows.to_csv(document(found, {"engine": "vLLM", "gpu": "H100-SXM-80GB"})["rows"])
    header = next(csv.reader(io.StringIO(text)))
    assert header[:5] == ["id", "source", "date", "engine", "engine_version"]
    assert header[-4:] == ["cached_input_tokens", "length_half_width", "gpu_memory_utilization", "max_model_len"]
    assert len(header) == 42
    back = rows.from_csv(text)
    assert [r["id"].rsplit("-", 1)[0].removeprefix("measure-")[11:] for r in back] == [
        "test-model-alone",
        "test-model-prefix-cold",
        "test-model-prefix-warm",
        "test-model-load",
    ]
    alone, _, warm, load = back
    assert alone["engine"] == "vLLM"
    assert (alone["load_kind"], alone["load_value"], load["load_value"]) == ("concurrency", 1, 2)
    assert alone["ttft_mean_ms"] == pytest.approx(1e3 * summarize(found)["ttft_s"]["mean"], rel=1e-4)
    assert warm["cached_input_tokens"] > 0


def test_spreadsheet_formulas_are_defused() -> None:
    text = rows.to_csv([rows.row(id="=cmd()", ttft_mean_ms=1.0)])
    assert "'=cmd()" in text


@pytest.mark.slow
def test_chart_data_and_pictures(tmp_path: Path) -> None:
    found, _ = run(Behaviour(gap_s=0.001), prompt_lengths=(50, 200), repeats=2)
    data = charts.chart_data(found.requests, lambda tokens, out: [{"prompt_tokens": t, "ttft_s": 0.03, "tpot_s": 0.01} for t in tokens])
    assert len(data["points"]) == 4
    assert [round(m["prompt_tokens"], -1) for m in data["medians"]] == [50, 200]
    assert [p["prompt_tokens"] for p in data["predicted"]] == [round(m["prompt_tokens"]) for m in data["medians"]]
    svg = charts.render(tmp_path / "plot.svg", data)
    assert svg.startswith("<svg")
    assert "the plan" in svg
    page = charts.render(tmp_path / "plot.html", data)
    assert "<svg" in page
    assert "http-equiv" not in page
    assert charts.chart_data([])["medians"] == []


def test_a_wrong_out_path_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    for name, told in (("x.txt", "ends in .txt"), ("nowhere/x.json", "folder does not exist")):
        with pytest.raises(InputError, match=told):
            command("measure", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--out", tmp_path / name)


def test_distributions() -> None:
    assert distribution([])["mean"] is None
    assert distribution([1.0, 2.0, 3.0, 4.0]) == pytest.approx(
        {"n": 4, "mean": 2.5, "min": 1, "p50": 2.5, "p90": 3.7, "p95": 3.85, "p99": 3.97, "max": 4}
    )


def test_an_event_that_is_no_json_is_told() -> None:
    async def lines():
        for line in ["data: {broken", ""]:
            yield line

    async def read() -> None:
        async for _ in events(lines(), Answer()):
            pass

    with pytest.raises(StreamError, match="not JSON"):
        asyncio.run(read())


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_killed_half_way_keeps_what_was_measured(how: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    script = "import sys; sys.path[:0] = ['tests']; from test_measure import command; sys.exit(command(*sys.argv[1:]))"
    with Server(Behaviour(gap_s=0.01)) as server:
        words = [
            "measure",
            "--base-url",
            server.url,
            "--model",
            "m",
            "--prompt-lengths",
            "50",
            "--repeats",
            "900",
            "--max-tokens",
            "10",
            "--json",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", script, *words, "--out", str(out)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(server.bodies) < 12:
            time.sleep(0.05)
        process.send_signal(how)
        printed, _ = process.communicate(timeout=30)
        sent = len(server.bodies) - 2
    kept = json.loads(out.read_text())
    whole = [r for r in kept["requests"] if r["error"] is None]
    assert len(whole) >= sent - 3 >= 5
    assert kept["summary"]["ok"] == len(whole)
    if how == signal.SIGKILL:
        assert not kept["summary"]["finished"]
    else:
        assert process.returncode == 130
        assert json.loads(printed)["summary"]["stopped"]


@pytest.mark.slow
def test_ten_streams_at_once_are_timed_as_one() -> None:
    """A client that reads many streams must not add its own waiting to any of them."""
    found, server = run(Behaviour(ttft_base_s=0.05, gap_s=0.02), repeats=1, max_tokens=8, concurrency=10, duration_s=0.3)
    load = [r.tpot_s for r in found.requests if r.experiment == "load"]
    truths = [t.tpot_s for t in server.truths[3:]]
    assert len(load) == len(truths) >= 10
    assert sum(load) / len(load) == pytest.approx(sum(truths) / len(truths), rel=0.15)


def test_threads_other_than_the_main_one_can_measure() -> None:
    results: list[Run] = []
    thread = threading.Thread(target=lambda: results.append(run(Behaviour(), repeats=1)[0]))
    thread.start()
    thread.join()
    assert results[0].finished


def test_results_survive_a_plan_that_cannot_be_laid_over_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"hardware": {"gpu": "h100-sxm"}, "model": {"name": "no-such-model"}}))
    with Server(Behaviour(gap_s=0.0)) as server:
        words = [
            "--base-url",
            server.url,
            "--model",
            "m",
            "--prompt-lengths",
            "50",
            "--repeats",
            "1",
            "--max-tokens",
            "4",
            "--no-prefix",
            "--json",
        ]
        status = command("measure", *words, "--plan", scenario, "--out", tmp_path / "run", "--out", tmp_path / "plot.vl.json")
    assert status == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["summary"]["ok"] == 1
    assert "no comparison: " in printed.err
    assert "the plots hold no prediction" in printed.err
    assert json.loads((tmp_path / "run").read_text())["summary"]["ok"] == 1
    assert json.loads((tmp_path / "plot.vl.json").read_text())["vconcat"]
