import hashlib
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import traces
from planner.problems import InputError
from planner.scenario import TraceRef

PUBLISHED = {
    "azure-2023-conv": (19_366, 5.53, 1155, 211),
    "azure-2023-code": (8_819, 2.57, 2048, 28),
    "mooncake-conversation": (12_031, 3.40, 12_035, 343),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_traces_have_the_published_statistics(name):
    requests, rate, input_tokens, output_tokens = PUBLISHED[name]
    trace = traces.shipped(name)
    assert len(trace) == requests
    assert trace.rejected_rows == 0
    assert trace.request_rate == pytest.approx(rate, abs=0.006)
    assert trace.input_tokens.mean() == pytest.approx(input_tokens, abs=0.6)
    assert trace.output_tokens.mean() == pytest.approx(output_tokens, abs=0.6)


def test_every_shipped_trace_says_whose_it_is():
    assert set(PUBLISHED) < set(traces.index())
    for name, row in traces.index().items():
        assert row["licence"], name
        assert row["source"], name
        assert row["date"], name
        assert (traces.FOLDER / f"{name}.csv").stat().st_size < 1_000_000


def test_mooncake_prompts_are_made_of_512_token_blocks_and_share_the_first():
    trace = traces.shipped("mooncake-conversation")
    assert trace.hash_ids is not None
    assert trace.hash_tokens == 512
    assert all(len(blocks) == -(-tokens // 512) for blocks, tokens in zip(trace.hash_ids, trace.input_tokens, strict=True))
    assert {blocks[0] for blocks in trace.hash_ids} == {0}


def test_ticks_are_spread_and_exact_times_are_not():
    mooncake = traces.shipped("mooncake-conversation")
    assert len(np.unique(mooncake.arrival_s)) < 1_300
    smoothed = mooncake.smoothed(np.random.default_rng(0))
    jittered = smoothed.arrival_s
    assert len(np.unique(jittered)) == len(mooncake)
    assert (np.diff(jittered) >= 0).all()
    assert np.abs(jittered - mooncake.arrival_s).max() <= 3.0
    assert smoothed.input_tokens is mooncake.input_tokens
    azure = traces.shipped("azure-2023-code")
    assert azure.smoothed(np.random.default_rng(0)) is azure


def test_unknown_traces_name_the_nearest():
    with pytest.raises(InputError, match="azure-2023-conv"):
        traces.shipped("azure-2023-conf")


SAME = [
    b"t_s,input_tokens,output_tokens\n5,100,10\n6.5,200,20\n",
    b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,100,10\n2023-11-16 18:15:48.0000000,200,20\n",
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,100,10,110,API\n6.5,GPT-4,200,20,220,API\n",
    b'{"timestamp": 5000, "input_length": 100, "output_length": 10}\n\n{"timestamp": 6500, "input_length": 200, "output_length": 20}\n',
    b"t_s,input_tokens,output_tokens\n6.5,200,20\n5,100,10\n",
]


@pytest.mark.parametrize("data", SAME)
def test_the_public_formats_are_understood(data):
    trace = traces.parse(data)
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.input_tokens.tolist() == [100, 200]
    assert trace.output_tokens.tolist() == [10, 20]
    assert trace.content_hash == hashlib.sha256(data).hexdigest()


def test_block_ids_come_as_lists_or_ranges():
    listed = traces.parse(b'{"timestamp": 0, "input_length": 70, "output_length": 1, "hash_ids": [0, 3, 4, 5, 9]}\n')
    ranged = traces.parse(b"t_s,input_tokens,output_tokens,blocks\n0,70,1,0 3-5 9\n")
    assert listed.hash_ids == ranged.hash_ids == ((0, 3, 4, 5, 9),)
    assert listed.hash_tokens == ranged.hash_tokens == 16


def test_bad_rows_are_reported_by_number_and_the_rest_is_kept():
    data = b"t_s,input_tokens,output_tokens\n0,10,5\n1,ten,5\n2,10,0\n3,10\nnan,10,5\n4,10.5,5\n5,10,5\n"
    trace = traces.parse(data)
    assert len(trace) == 2
    assert [bad.row for bad in trace.rejected] == [3, 4, 5, 6, 7]
    assert trace.rejected_rows == 5
    assert "input_tokens is 'ten'" in trace.rejected[0].reason
    assert "output_tokens is 0" in trace.rejected[1].reason
    lines = b'{"timestamp": 0, "input_length": 5, "output_length": 5}\n[1, 2]\n{"timestamp": \n'
    assert [bad.row for bad in traces.parse(lines).rejected] == [2, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no usable request"),
        (b"a,b\n1,2\n", "has the columns a, b; expected t_s"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"t_s,input_tokens,output_tokens\n0,-1,5\n", "row 2: input_tokens is -1"),
        (b"t_s,input_tokens,output_tokens,blocks\n0,1,5,0-99999999999\n", "row 2: blocks is"),
        (b'{"timestamp": 0, "input_length": ' + b"[" * 5_000, "no usable request"),
    ],
)
def test_files_that_are_no_trace_say_why(data, message):
    with pytest.raises(InputError, match=message):
        traces.parse(data)


def test_size_is_limited(monkeypatch):
    monkeypatch.setattr("planner.traces.reader.MAX_BYTES", 10)
    with pytest.raises(InputError, match="the limit is"):
        traces.parse(b"t_s,input_tokens,output_tokens\n0,1,5\n")
    monkeypatch.setattr("planner.traces.reader.MAX_BYTES", 1_000)
    monkeypatch.setattr("planner.traces.reader.MAX_ROWS", 1)
    with pytest.raises(InputError, match="more than 1 requests"):
        traces.parse(b"t_s,input_tokens,output_tokens\n0,1,5\n0,1,5\n")


def test_an_upload_is_found_by_its_hash_and_only_by_it():
    trace = traces.upload(b"t_s,input_tokens,output_tokens\n0,1,5\n", "mine.csv")
    assert traces.get(TraceRef(name="mine.csv", content_hash=trace.content_hash)) is trace
    with pytest.raises(InputError, match="uploaded elsewhere; upload the file"):
        traces.get(TraceRef(name="mine.csv", content_hash="0" * 64))
    assert len(traces.get(TraceRef(name="azure-2023-code"))) == 8_819


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f"t_s,input_tokens,output_tokens\n{text}".encode()))
def test_whatever_is_uploaded_is_a_trace_or_an_explanation(data):
    try:
        requests = len(traces.parse(data))
    except InputError:
        return
    assert requests >= 1


@pytest.mark.parametrize(
    ("first", "second", "apart_s"),
    [
        ("2023-11-16T18:17:03.97+02:00", "2023-11-16T18:17:04.97-05:00", 7 * 3600 + 1),
        ("2023-11-16 18:17:03.9700000Z", "2023-11-16 18:17:04.9700000", 1),
        ("2023-03-26 01:59:59", "2023-03-26 03:00:01", 3602),
    ],
)
def test_times_of_day_stand_where_their_zone_says_and_else_in_utc(first, second, apart_s, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        trace = traces.parse(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{first},5,6\n{second},5,6\n".encode(), "mine")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert trace.arrival_s.tolist() == pytest.approx([0, apart_s])


def test_a_list_of_requests_and_old_line_ends_are_understood():
    listed = traces.parse(
        b'[{"timestamp": 0, "input_length": 5, "output_length": 6}, {"timestamp": 9, "input_length": 5, "output_length": 6}]'
    )
    old = traces.parse(b"t_s,input_tokens,output_tokens\r0,5,6\r1,5,6\r")
    assert (len(listed), len(old)) == (2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_s,input_tokens,input_tokens,output_tokens\n0,5,9,6\n", "the column input_tokens twice"),
        ("t_s;input_tokens;output_tokens\n0;5;6\n", "with commas between"),
        ("t_s,input_tokens,output_tokens\n0,5\n", "output_tokens is missing"),
        ("t_s,input_tokens,output_tokens\n", "a line for each request"),
        ("[1, 2", "give a list of requests"),
    ],
)
def test_careless_tables_say_what_to_do(text, said):
    with pytest.raises(InputError, match=said):
        traces.parse(text.encode(), "mine")
