"""When the machine fails – no disk, no network, a missing package, a stopped run – people are told, and nothing saved is lost."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner import export, presets, sweep
from planner.command import main
from planner.export import page, svg
from planner.measure.clients import Client
from planner.plan import plan
from planner.problems import InputError
from planner.scenario import Scenario, parse

ROOT = Path(__file__).resolve().parent.parent
SMALL = parse({"workload": {"num_prompts": 10, "output_len": 10}})


class Blocked:
    """An import hook that knows no package of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without(monkeypatch):
    """Takes packages away for one test."""

    def take(*names: str) -> None:
        for loaded in [m for m in sys.modules if m.partition(".")[0] in names]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setattr(sys, "meta_path", [Blocked(*names), *sys.meta_path])

    return take


OPTIONAL = ("openai", "anthropic", "joblib", "vl_convert", "xlsxwriter", "genai_prices", "jinja2", "altair", "pandas", "streamlit", "dask")


class TestMissingPackages:
    def test_a_plan_and_its_plain_documents_need_none_of_them(self):
        code = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
from planner import export, links, presets
from planner.plan import plan
from planner.scenario import parse
answer = plan(parse({{"workload": {{"num_prompts": 10, "output_len": 10}}}}))
for kind in ("json", "md", "csv", "zip"):
    assert export.build(answer, kind, export.Extras())
assert links.decode(links.encode(answer.scenario))[0] == answer.scenario
"""
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)

    @pytest.mark.parametrize(("kind", "package"), [("xlsx", "xlsxwriter"), ("html", "jinja2")])
    def test_a_document_names_what_it_lacks_and_what_works_instead(self, without, kind, package):
        answer = plan(SMALL, effort="quick")
        without(package)
        page._template.cache_clear()
        with pytest.raises(InputError, match=f"{package}.*(CSV|Markdown)"):
            export.build(answer, kind, export.Extras())

    def test_a_page_without_the_chart_renderer_has_sentences_instead(self, without):
        answer = plan(SMALL, effort="quick")
        without("vl_convert")
        svg._drawn.cache_clear()
        made = export.build(answer, "html", export.Extras()).decode()
        assert "vl-convert" in made or "<svg" not in made

    def test_the_page_says_which_formats_this_server_cannot_make(self, monkeypatch):
        monkeypatch.setattr(export, "find_spec", lambda name: None if name == "xlsxwriter" else name)
        assert export.missing("xlsx") == "xlsxwriter"
        assert export.missing("md") == ""
        at = AppTest.from_function(popover, default_timeout=30).run()
        assert not at.exception
        assert any("xlsxwriter" in caption.value for caption in at.caption)

    def test_many_processes_need_joblib_and_one_does_not(self, without, capsys):
        without("joblib")
        words = ["sweep", "chat-70b-2xh100", "--set", "workload.num_prompts=10", "--axis", "engine.max_num_seqs=8,16"]
        assert main([*words, "--jobs", "2"]) == 2
        assert "joblib" in capsys.readouterr().err
        assert main(words) == 0

    @pytest.mark.parametrize("api", ["openai", "anthropic"])
    def test_measuring_names_its_client(self, without, api):
        from planner.measure.clients import Endpoint

        without(api)
        with pytest.raises(InputError, match=f"pip install {api}"):
            Client(Endpoint(base_url="http://127.0.0.1:9/v1", model="m", api=api))

    def test_a_price_outside_the_snapshot_needs_the_library(self, without):
        without("genai_prices")
        with pytest.raises(InputError, match="genai-prices"):
            plan(parse({"price": {"compare_to": ["nobody:nothing"]}}), effort="quick")

    def test_any_other_missing_package_is_one_line(self, monkeypatch, capsys):
        def broken(*_):
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy.linalg")

        monkeypatch.setattr("planner.command.catalogue.show_gpus", broken)
        assert main(["gpus"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def popover() -> None:
    import streamlit as st

    from planner.plan import plan
    from planner.scenario import parse
    from planner.views import sharing

    scenario = parse({"workload": {"num_prompts": 10, "output_len": 10}})
    st.session_state["_scenario"] = scenario
    sharing.body(plan(scenario, effort="quick").to_dict(), scenario)


def disk_full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestDisks:
    def test_a_full_disk_on_export_is_said_and_keeps_the_old_file(self, tmp_path, monkeypatch, capsys):
        target = tmp_path / "plan.json"
        target.write_text("yesterday's")
        monkeypatch.setattr(os, "replace", disk_full)
        assert main(["plan", "chat-70b-2xh100", "--set", "workload.num_prompts=10", "--quick", "--out", str(target)]) == 2
        assert capsys.readouterr().err == f"{target}: No space left on device; choose a path that can be read and written\n"
        assert target.read_text() == "yesterday's"
        assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]

    @pytest.mark.slow
    def test_a_full_disk_under_the_output_is_one_line(self):
        with open("/dev/full", "w") as full:
            told = subprocess.run([sys.executable, "-m", "planner", "gpus"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
        assert told.returncode == 2
        assert told.stderr == "output: No space left on device; choose a path that can be read and written\n"

    @pytest.mark.parametrize(
        ("kind", "said"), [("pipe", "No such device"), ("full", "No space left"), ("folder", "Is a directory"), ("nowhere", "")]
    )
    def test_what_is_no_file_is_written_to_or_refused_by_name(self, kind, said, tmp_path):
        target = tmp_path / "plan.json"
        make = {
            "pipe": lambda: os.mkfifo(target),
            "full": lambda: target.symlink_to("/dev/full"),
            "folder": target.mkdir,
            "nowhere": lambda: target.symlink_to("/dev/null"),
        }
        make[kind]()
        if not said:
            export.save(b"{}", target)
            return
        with pytest.raises(OSError, match=said) as refused:
            export.save(b"{}", target)
        assert refused.value.filename == str(target)

    def test_a_full_disk_under_a_preset_keeps_the_old_one(self, tmp_path, monkeypatch):
        presets.save("mine", Scenario(name="before"), tmp_path)
        monkeypatch.setattr(os, "replace", disk_full)
        with pytest.raises(InputError, match="No space left"):
            presets.save("mine", Scenario(name="after"), tmp_path, replace=True)
        assert presets.load("mine", tmp_path).name == "before"
        assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]

    @pytest.mark.slow
    def test_a_read_only_disk_is_said(self, tmp_path, monkeypatch, capsys):
        def read_only(*_, **named):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(named.get("dir", "")))

        monkeypatch.setattr(tempfile, "NamedTemporaryFile", read_only)
        with pytest.raises(InputError, match="Read-only file system"):
            presets.save("mine", Scenario(), tmp_path)
        assert main(["plan", "chat-70b-2xh100", "--set", "workload.num_prompts=10", "--quick", "--out", str(tmp_path / "p.md")]) == 2
        assert capsys.readouterr().err.startswith(f"{tmp_path / 'p.md'}: Read-only file system")

    @pytest.mark.parametrize("path", ["nowhere/plan.json", "plan.exe", ""])
    @pytest.mark.slow
    def test_a_path_that_cannot_be_is_one_line(self, path, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        status = main(["plan", "chat-70b-2xh100", "--set", "workload.num_prompts=10", "--quick", "--out", path])
        assert status == 2 or not path
        assert capsys.readouterr().err.count("\n") == (1 if path else 0)


class TestNetwork:
    def test_nothing_but_measuring_and_updating_needs_one(self, monkeypatch, capsys):
        monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked for a name"))
        answer = plan(SMALL, effort="quick")
        for kind in export.KINDS:
            assert export.build(answer, kind, export.Extras())
        assert main(["prices", "--json", "h100"]) == 0

    def test_an_update_without_one_keeps_the_prices_and_says_so(self, monkeypatch, capsys):
        from planner.catalog import list_prices

        before = list_prices.rows()

        def offline(*_, **__):
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

        monkeypatch.setattr(socket, "getaddrinfo", offline)
        monkeypatch.setattr(socket.socket, "connect", offline)
        assert main(["prices", "--update"]) == 2
        err = capsys.readouterr().err
        assert "the old ones stay" in err
        assert err.count("\n") == 1
        assert list_prices.rows() == before


class TestClosedStreams:
    """A program may be started without any of its three streams; Python then has None for them."""

    def test_no_standard_input_is_one_line(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "stdin", None)
        assert main(["plan", "-"]) == 2
        assert capsys.readouterr().err.startswith("standard input is closed; ")

    def test_no_standard_output_is_no_fault(self, monkeypatch):
        monkeypatch.setattr(sys, "stdout", None)
        assert main(["gpus"]) == 0
        monkeypatch.setattr(sys, "stderr", None)
        assert main(["plan", "nothing"]) == 2


class TestStopping:
    def test_a_stopped_sweep_prints_what_it_has(self, monkeypatch, capsys):
        reached: list[object] = []

        def stop_after_two(scenario, changes, effort):
            if len(reached) == 2:
                raise KeyboardInterrupt
            reached.append(changes)
            return dict(changes) | {"meets_slo": True, "problems": []}

        found = sweep.sweep(SMALL, [sweep.axis("engine.max_num_seqs=1,2,3,4,5")], measure=stop_after_two)
        assert (len(found.rows), found.missing) == (2, 3)
        monkeypatch.setattr("planner.sweep.sweep", lambda *_, **__: found)
        assert main(["sweep", "chat-70b-2xh100", "--axis", "engine.max_num_seqs=1,2,3,4,5"]) == 130
        said = capsys.readouterr()
        assert "2 of 5 points" in said.err
        assert len(said.out.splitlines()) == 4  # head, rule, two rows

    def test_a_stopped_search_prints_what_it_has(self, monkeypatch, capsys):
        from planner import recommend

        real = recommend.recommend

        def stopped(*arguments):
            for event in real(*arguments):
                yield event
                if isinstance(event, recommend.Option):
                    raise KeyboardInterrupt

        monkeypatch.setattr(recommend, "recommend", stopped)
        words = ["recommend", "chat-70b-2xh100", "--gpus", "h100-sxm", "--tensor-parallel", "4", "--no-split", "--no-speculation"]
        assert main([*words, "--set", "workload.num_prompts=50"]) == 130
        said = capsys.readouterr()
        assert "stopped before the end" in said.err
        assert "h100-sxm TP4" in said.out

    @pytest.mark.slow
    def test_a_killed_sweep_leaves_no_half_written_file(self, tmp_path):
        words = [sys.executable, "-m", "planner", "sweep", "chat-70b-2xh100", "--axis", "workload.request_rate=1:9:400", "--json"]
        with (tmp_path / "out.json").open("w") as out:
            run = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True)
            time.sleep(8)
            run.send_signal(signal.SIGINT)
            err = run.communicate(timeout=120)[1]
        assert run.returncode == 130
        assert "stopped" in err
        assert "Traceback" not in err
        assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def recommending() -> None:
    from planner.views import sidebar, state
    from planner.views.pages import recommend

    state.open_link()
    sidebar.render()
    recommend.render()


@pytest.mark.slow
def test_a_page_that_outlives_its_server_says_that_the_search_is_gone():
    at = AppTest.from_function(recommending, default_timeout=60)
    at.query_params["workload.request_rate"] = "3"
    at.query_params["recommend.searching"] = "true"
    at.run()
    assert not at.exception
    assert any("what it had found is gone" in warning.value for warning in at.warning)
    assert at.number_input(key="workload.request_rate").value == 3
