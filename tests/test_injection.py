"""No user text becomes markup, a formula, a path, code or a request, whichever way it comes in and goes out."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import re
import socket
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from google.protobuf.json_format import MessageToDict
from hostile import HOSTILE_TEXTS
from streamlit.testing.v1 import AppTest

from planner import catalog, export, links, presets
from planner.measure import rows as measured_rows
from planner.plan import plan
from planner.problems import InputError
from planner.scenario import Scenario, parse

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [ROOT / "app.py", *sorted((ROOT / "planner").rglob("*.py"))]
CALLS_OUT = {"planner/measure", "planner/catalog/list_prices.py", "planner/command"}
"""What may speak to the network: measuring an endpoint that the user names, and `prices --update`."""
NETWORK = {
    "http",
    "urllib.request",
    "urllib3",
    "requests",
    "httpx",
    "aiohttp",
    "socket",
    "ssl",
    "ftplib",
    "openai",
    "anthropic",
    "genai_prices",
}
UNSAFE_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "subprocess", "pty", "code", "ctypes"}
MAY = {"planner/worker.py": {"subprocess"}}
"""It starts this program again, with fixed arguments."""
UNSAFE_ARGUMENTS = {"unsafe_allow_html", "unsafe_allow_javascript", "shell", "allow_pickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "load_module", "read_pickle", "html", "iframe"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def one_of(words: Iterable[str]) -> str:
    return rf"\b({'|'.join(map(re.escape, sorted(words)))})\b"


def sources(*patterns: str) -> Iterator[tuple[str, ast.Module]]:
    """Name and syntax of the sources in whose text one of these occurs; parsing every file would take seconds."""
    wanted = re.compile("|".join(patterns))
    yield from ((path.relative_to(ROOT).as_posix(), parsed(path)) for path in SOURCES if wanted.search(path.read_text()))


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_no_code_path_runs_text_or_renders_raw_html():
    found = []
    for name, tree in sources(
        rf"import.*{one_of(UNSAFE_IMPORTS)}",
        rf"from +{one_of(UNSAFE_IMPORTS)}",
        rf"{one_of(UNSAFE_CALLS)} *\(",
        rf"{one_of(UNSAFE_ARGUMENTS)} *=",
    ):
        found += [
            f"{name} imports {module}" for module in imports(tree) if module.partition(".")[0] in UNSAFE_IMPORTS - MAY.get(name, set())
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in UNSAFE_ARGUMENTS:
                found.append(f"{name}:{node.value.lineno} {node.arg}")
            if isinstance(node, ast.Call):
                function = node.func
                called = function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
                owner = getattr(getattr(function, "value", None), "id", "")
                if called in UNSAFE_CALLS and owner in ("", "st", "os", "pd", "components", "v1") and called != "html":
                    found.append(f"{name}:{node.lineno} calls {called}")
                if called == "html" and owner in ("st", "components", "v1"):
                    found.append(f"{name}:{node.lineno} calls {owner}.html")
    assert not found


def test_only_measuring_and_updating_prices_speak_to_the_network():
    found = []
    for name, tree in sources(rf"import.*{one_of(NETWORK)}", rf"from +{one_of(NETWORK)}"):
        if not any(name.startswith(allowed) for allowed in CALLS_OUT):
            modules = set(imports(tree))
            found += [f"{name} imports {m}" for m in modules if m in NETWORK or m.partition(".")[0] in NETWORK - {"http"}]
    assert not found


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a link caused an outgoing request")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


URLS = ("http://169.254.169.254/latest/meta-data/", "https://attacker.example/config.json", "file:///etc/passwd", "//attacker.example/x")


@pytest.mark.usefixtures("_no_network")
@pytest.mark.parametrize(
    "field", ["model.name", "hardware.gpu", "workload.trace.name", "fleet.demand_curve", "price.compare_to", "preset", "name"]
)
@pytest.mark.parametrize("url", URLS)
def test_no_link_causes_a_request(field, url):
    scenario, _ = links.decode({field: url, "workload.num_prompts": "5"})
    with contextlib.suppress(InputError):
        plan(scenario, effort="quick")


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_no_text_is_a_path(text, tmp_path):
    inside = tmp_path / "presets"
    inside.mkdir()
    with pytest.raises(InputError):
        presets.load(text, inside)
    if not presets.NAME.fullmatch(text):
        with pytest.raises(InputError):
            presets.save(text, Scenario(), inside)
        assert not list(inside.iterdir())
    assert presets.NAME.fullmatch(presets.slug(text))
    assert [p.name for p in tmp_path.iterdir()] == ["presets"]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_no_measured_row_is_a_formula(text):
    table = measured_rows.to_csv([measured_rows.row(id=text or "x", source=text, model=text, notes=text, tpot_mean_ms=1.0)])
    for row in csv.reader(io.StringIO(table)):
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell


def scenario_saying(text: str) -> Scenario:
    """A scenario with `text` in every free text it has room for."""
    cut = text.encode("utf-8", "replace").decode()[:110]
    return parse(
        {
            "name": cut,
            "notes": text.encode("utf-8", "replace").decode()[:3000],
            "model": {"name": cut, "hf_config": catalog.model_config("llama-3.1-8b")},
            "engine": {"version": f"9{cut[:29]}"},
            "workload": {"num_prompts": 5, "output_len": 5},
            "price": {"compare_to": [{"label": cut or "x", "input": 1, "output": 2}]},
            "calibration": {"factor": 1.1, "source": cut, "engine": "vllm", "gpu": "h100-sxm"},
        }
    )


class Page(HTMLParser):
    """The tags and attributes of a page, and whatever could act."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("iframe", "object", "embed", "form", "base", "link", "img", "audio", "video", "applet"):
            self.acts.append(tag)
        for name, value in attrs:
            target = re.sub(r"\s", "", value or "").lower()
            if name.startswith("on") or (name in ("href", "src", "action", "xlink:href") and target and not target.startswith("#")):
                self.acts.append(f"{tag} {name}={value}")


CORPUS = [t for t in HOSTILE_TEXTS if t.strip() and len(t) < 200]


@pytest.fixture(scope="module", params=range(0, len(CORPUS), 6))
def documents(request):
    """Documents of a scenario that says several hostile things at once."""
    text = "\n".join(CORPUS[request.param : request.param + 6])
    answer = plan(scenario_saying(text), effort="quick")
    return {kind: export.build(answer, kind, export.Extras()) for kind in export.KINDS}


def test_no_text_acts_on_the_exported_page(documents):
    page = Page()
    page.feed(documents["html"].decode())
    harmless = [a for a in page.acts if re.match(r"a href=(https?:|mailto:)", a)]
    assert page.acts == harmless
    assert not [a for a in harmless if "attacker" in a]
    assert page.scripts == 1


def test_no_text_is_markup_in_markdown(documents):
    text = documents["md"].decode()
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)<\s*/?(img|script|svg|a|iframe|!--)", outside, re.IGNORECASE)
    assert not re.search(r"(?<!\\)\]\(\s*(javascript|https?://attacker)", outside)


def test_no_text_is_a_formula(documents):
    book = openpyxl.load_workbook(io.BytesIO(documents["xlsx"]))
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            assert not [c.coordinate for c in row if c.data_type == "f" or c.hyperlink]
    with zipfile.ZipFile(io.BytesIO(documents["zip"])) as archive:
        names = archive.namelist()
        assert all(re.fullmatch(r"[\w.-]+", name) for name in names)
        tables = [documents["csv"], *(archive.read(n) for n in names if n.endswith(".csv"))]
    for data in tables:
        for row in csv.reader(io.StringIO(data.decode())):
            for cell in row:
                assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
                assert not cell.startswith("-") or float(cell) < 0, cell


MARK = "Zq"
SPEAKS = f"{MARK}<img src=x onerror=1>![i](http://h/x)[l](javascript:1):red[q]$x$`c`*b*"
PLAIN_FIELDS = {
    "code",
    "text",
    "text_input",
    "text_area",
    "selectbox",
    "multiselect",
    "vega_lite_chart",
    "arrow_data_frame",
    "file_uploader",
}
"""Elements that show text as it is, and never as Markdown."""
PAGES = ("plan", "simulate", "compare", "recommend", "fleet", "lessons", "accuracy", "assumptions")


def strings(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from strings(value, f"{path}.{key}")
    elif isinstance(data, list):
        for value in data:
            yield from strings(value, path)
    elif isinstance(data, str):
        yield path, data


def elements(node: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(node, "children", None)
    if getattr(node, "proto", None) is not None:
        yield str(getattr(node, "type", "")), node.proto
    for child in (children or {}).values():
        yield from elements(child)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_no_text_is_markdown_on_a_page(name):
    shell = f"""
import streamlit as st
from planner.views import components, sidebar, state
from planner.views.pages import {name}
state.open_link()
sidebar.render()
components.notes()
{name}.render()
"""
    at = AppTest.from_string(shell, default_timeout=60)
    for key, value in {**links.encode(scenario_saying(SPEAKS)), "hardware.gpu": SPEAKS, SPEAKS: SPEAKS}.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception, at.exception[0].message
    seen = 0
    for kind, proto in elements(at._tree):
        if kind in PLAIN_FIELDS:
            continue
        for path, text in strings(MessageToDict(proto)):
            for found in re.finditer(rf"{MARK}.{{0,100}}", text):
                seen += 1
                assert not re.search(r"(?<!\\)[<\[`$]", found[0]), f"{kind}{path}: {text[:200]}"
    assert seen


def test_the_server_is_private_and_guarded_unless_somebody_changes_it():
    server = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert server["server"]["address"] == "127.0.0.1"
    assert server["server"]["enableXsrfProtection"] is True
    assert server["server"]["enableCORS"] is True
    assert server["server"]["maxUploadSize"] <= 8
    assert server["browser"]["gatherUsageStats"] is False
    assert server["client"]["showErrorDetails"] in ("type", "none")


def test_every_requirement_is_pinned():
    for name in ("requirements.txt", "tests/requirements.txt"):
        lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.]+( ?;.*)?", line) for line in lines), name


def test_the_readme_names_every_bound_with_its_default():
    table = (ROOT / "README.md").read_text()
    source = (ROOT / "planner" / "bounds.py").read_text()
    for name, default in re.findall(r'_bound\("(\w+)", ([\d_]+)\)', source):
        assert f"PLANNER_{name}" in table, name
        assert f"{int(default):,}" in table, (name, default)
