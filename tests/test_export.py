"""One document, many formats: the same digits everywhere, the same bytes every time, nothing of a user's text alive."""

import csv
import hashlib
import html
import io
import json
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import openpyxl
import pytest

from planner import export, plan
from planner.export import figures, markdown, sheets, tables
from planner.problems import InputError
from planner.scenario import Scenario

KEPT = Path(__file__).parent / "data" / "documents"
"""A plan with its what-ifs, and the documents that this version made of it (see its README.md)."""


@pytest.fixture(scope="module")
def made():
    """A plan's JSON, its what-ifs and its document."""
    answer = json.loads((KEPT / "plan-and-what-ifs.json").read_text("utf-8"))
    extras = export.extras_of(answer)
    return answer, extras, export.document(answer, extras)


@pytest.fixture(scope="module")
def files(made):
    return {kind: export.render(made[2], kind) for kind in export.KINDS}


class TablesOfPage(HTMLParser):
    """Rows of cell texts by the identifier of the figure around each table."""

    def __init__(self):
        super().__init__()
        self.found, self.slug, self.inside = {}, None, False

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "figure" and (attributes.get("id") or "").startswith("table-"):
            self.slug = attributes["id"].removeprefix("table-")
            self.found[self.slug] = []
        elif tag == "tr" and self.slug:
            self.found[self.slug].append([])
        elif tag in ("td", "th") and self.slug:
            self.inside = True
            self.found[self.slug][-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.inside = False
        elif tag == "figure":
            self.slug = None

    def handle_data(self, data):
        if self.inside and self.slug:
            self.found[self.slug][-1][-1] += data


def texts(table):
    return [[c.text for c in row] for row in table.rows]


def body_tables(document):
    return [t for t in document.tables() if t.slug != "head"]


def test_all_sections_stand_in_order_and_say_something(made):
    document = made[2]
    assert [s.number for s in document.sections] == list(range(1, 12))
    titles = [s.title for s in document.sections]
    assert titles[:4] == ["Decision", "Demand", "Promises", "Sizing"]
    assert titles[4:] == [
        "Headroom and failure",
        "Cost",
        "Against list prices",
        "Sensitivity",
        "Assumptions and provenance",
        "Launch",
        "Acceptance test",
    ]
    assert all(s.blocks for s in document.sections)
    slugs = {t.slug for t in document.tables()}
    assert {
        "decision",
        "demand",
        "lengths",
        "promises",
        "memory",
        "step-terms",
        "load-points",
        "failures",
        "bill",
        "commitments",
        "power",
    } <= slugs
    assert {"list-prices", "break-even", "sensitivity", "cases", "heat-map", "provenance", "alerts", "acceptance", "sign-off"} <= slugs
    assert len(slugs) == len(list(document.tables())), "each table has a name of its own"


@pytest.mark.slow
def test_page_shows_every_table_as_the_document_has_it(made, files):
    page = TablesOfPage()
    page.feed(files["html"].decode())
    for t in body_tables(made[2]):
        assert page.found[t.slug] == [list(t.columns), *texts(t)], t.slug


def test_markdown_shows_the_same_cells(made, files):
    lines = files["md"].decode().splitlines()
    for t in made[2].tables():
        start = lines.index(f"### {markdown.escaped(t.title)}") + 4
        for offset, row in enumerate(texts(t)):
            shown = [unescaped(c.strip()) for c in re.split(r"(?<!\\)\|", lines[start + offset])[1:-1]]
            assert shown == [" ".join(c.split()) for c in row], t.slug


def unescaped(text):
    return html.unescape(re.sub(r"\\([\\`*\[\]<>|#~_+\-=.)])", r"\1", text))


def test_csv_holds_the_same_digits(made, files):
    rows = list(csv.DictReader(io.StringIO(files["csv"].decode())))
    expected = [(t.slug, c) for t in made[2].tables() for row in t.rows for c in row]
    assert len(rows) == len(expected)
    for got, (slug, c) in zip(rows, expected, strict=True):
        assert got["table"] == slug
        if c.number is not None:
            assert got["value"] == c.number
            assert digits_of(c.text) == got["value"]


def digits_of(text):
    """The number inside a shown figure, as plain digits."""
    found = re.search(r"[\d,]+(?:\.\d+)?", text)
    return ("-" if "−" in text else "") + found[0].replace(",", "")


def test_zip_holds_each_table_and_the_requests(made, files):
    with zipfile.ZipFile(io.BytesIO(files["zip"])) as archive:
        names = set(archive.namelist())
        assert {f"{t.slug}.csv" for t in made[2].tables()} | {"plan.json", "requests.csv"} == names
        for t in made[2].tables():
            rows = list(csv.reader(io.StringIO(archive.read(f"{t.slug}.csv").decode())))
            assert len(rows) == len(t.rows) + 1
            for got, row in zip(rows[1:], t.rows, strict=True):
                for c in row:
                    assert tables.value(c) in got
        requests = list(csv.DictReader(io.StringIO(archive.read("requests.csv").decode())))
    assert len(requests) == len(made[1].requests) == 60
    assert all(float(r["ttft_s"]) > 0 for r in requests)


def test_workbook_holds_the_same_digits_and_shows_them_the_same(made, files):
    book = openpyxl.load_workbook(io.BytesIO(files["xlsx"]))
    values = {}
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for c in row:
                if c.value is not None:
                    values.setdefault((sheet.title, str(c.value) if isinstance(c.value, str) else c.value), []).append(c)
    for section in made[2].sections:
        sheet = f"{section.number} {section.title}"[:31]
        for t in (b for b in section.blocks if hasattr(b, "rows")):
            for c in (c for row in t.rows for c in row if c.number is not None):
                cells = values[(sheet, float(c.number))]
                assert any(as_excel_shows(x) == c.text.replace("−", "-") for x in cells), (t.slug, c.text)


def as_excel_shows(cell):
    """What a spreadsheet prints for a number under one of our formats."""
    before, decimals, after = re.fullmatch(r'(?:"(.*?)")?#,##0(?:\.(0+))?(?:"(.*)")?', cell.number_format).groups()
    number = f"{abs(cell.value):,.{len(decimals or '')}f}"
    return f"{'-' if cell.value < 0 else ''}{before or ''}{number}{after or ''}"


def test_json_carries_the_plan_whole(made, files):
    carried = json.loads(files["json"])
    for name, part in made[0].items():
        assert name == "extras" or carried[name] == part, name
    assert carried["link"].startswith("?")
    assert carried["acceptance"]["points"]


@pytest.mark.slow
def test_bytes_are_the_same_in_another_process(files):
    script = (
        "import hashlib, json, pathlib\nfrom planner import export\n"
        f"plan = json.loads(pathlib.Path({str(KEPT / 'plan-and-what-ifs.json')!r}).read_text('utf-8'))\n"
        "print(json.dumps({k: hashlib.sha256(export.build(plan, k)).hexdigest() for k in export.KINDS}))"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parent.parent)}
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment).stdout
    assert json.loads(told) == {kind: hashlib.sha256(data).hexdigest() for kind, data in files.items()}


def test_bytes_are_the_same_twice(made, files):
    answer, extras, _ = made
    for kind in export.KINDS:
        assert export.build(answer, kind, extras) == files[kind], kind


def test_the_page_needs_nothing_from_outside(files):
    page = files["html"].decode()
    assert page.count("<svg") >= 6
    assert "<script>" not in page
    for attribute in re.findall(r'(?:src|href|action|data|poster)="([^"]*)"', page):
        assert attribute.startswith("#"), attribute
    assert "url(http" not in page
    assert "@import" not in page
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers)), "charts must not share identifiers"


HOSTILE = {
    "name": "<img src=x onerror=alert(1)> ![a](http://host/x) |`*_ </script><script>alert(2)</script> =1+1",
    "notes": '=HYPERLINK("http://host","x")\n# heading\n```\n</script>\n[a](javascript:alert(1)) https://host/x',
    "model": {"name": "=cmd|' /C calc'!A0"},
    "workload": {"request_rate": 1.0, "num_prompts": 30, "output_len": 20},
    "price": {
        "usd_per_gpu_hour": 2.0,
        "compare_to": [{"label": "@SUM(A1)", "input": 1.0, "output": 2.0}, {"label": "-2+3<b>", "input": 1.0, "output": 2.0}],
    },
}


@pytest.fixture(scope="module")
def hostile():
    from planner import catalog

    raw = json.loads(json.dumps(HOSTILE))
    raw["model"]["hf_config"] = catalog.model_config("llama-3.1-8b")
    answer = plan(Scenario.model_validate(raw), effort="quick")
    return answer, {kind: export.build(answer, kind, export.Extras()) for kind in export.KINDS}


def test_no_user_text_is_markup_on_the_page(hostile):
    page = hostile[1]["html"].decode()
    assert "<img" not in page
    assert "<b>" not in page
    assert page.count("<script") == 1
    assert page.count("</script") == 1
    assert "&lt;img src=x" in page
    before, _, script = page.partition('id="plan">')
    assert "onerror=alert" in html.unescape(before)
    assert "<" not in script.partition("</script>")[0]


def test_no_user_text_is_markup_in_markdown(hostile):
    text = hostile[1]["md"].decode()
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)!\[", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert not re.search(r"(?<!\\)<(img|script|b)\b", outside)
    assert "javascript:" not in outside
    assert "http://host" not in outside
    assert "\n# heading" not in outside


def test_no_user_text_is_a_formula(hostile):
    _answer, files = hostile
    book = openpyxl.load_workbook(io.BytesIO(files["xlsx"]))
    cells = [c for sheet in book.worksheets for row in sheet.iter_rows() for c in row if c.value is not None]
    assert not [c.coordinate for c in cells if c.data_type == "f"]
    assert not [c.coordinate for c in cells if c.hyperlink]
    assert any(c.value == "@SUM(A1)" for c in cells)
    for data in (files["csv"], *zipped_csv(files["zip"])):
        for row in csv.reader(io.StringIO(data.decode())):
            for value in row:
                assert not value.startswith(("=", "+", "@", "\t")), value
                assert not value.startswith("-") or float(value) < 0, value


def zipped_csv(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(n) for n in archive.namelist() if n.endswith(".csv")]


def test_a_plan_that_does_not_fit_shows_the_shortfall_and_no_price_per_token():
    scenario = Scenario.model_validate({"model": {"name": "llama-3.1-405b"}, "precision": {"weights": "fp8"}})
    answer = plan(scenario, effort="quick")
    document = export.document(answer.to_dict(), export.extras_of(answer))
    tables_by_slug = {t.slug: t for t in document.tables()}
    decision = {row[0].text: row[1].text for row in tables_by_slug["decision"].rows}
    assert decision["Does it fit"] == "no"
    assert not [q for q in decision if "per 1,000" in q or "per million" in q]
    assert "missing" in {row[0].text for row in tables_by_slug["memory"].rows}
    assert not {"unit-costs", "list-prices", "acceptance", "sensitivity"} & set(tables_by_slug)
    assert [s.number for s in document.sections] == list(range(1, 12))
    for section in document.sections:
        assert section.blocks
    for kind in export.KINDS:
        assert export.build(answer, kind, export.Extras())


KINDS_OF_PLAN = [
    {"workload": {"request_rate": None, "max_concurrency": 4, "num_prompts": 20, "output_len": 20}},
    {"workload": {"request_rate": 0.0}},
    {"slo": {"ttft_s": None, "tpot_s": None}, "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20}},
    {"hardware": {"gpu": "rtx-pro-6000"}, "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20}},
    {"price": {"basis": "owned", "owned": {}}, "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20}},
    {"model": {"name": "llama-3.3-70b"}, "parallel": {"tensor_parallel_size": 3}},
    {"fidelity": "textbook", "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20}},
    {"speculative": {"method": "ngram", "acceptance_rate": 0.5}, "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20}},
    {
        "fleet": {"commitments": [{"share": 0.5}, {"gpus": 1, "basis": "spot"}]},
        "workload": {
            "request_rate": 1,
            "num_prompts": 20,
            "output_len": 20,
            "priority_classes": [{"share": 0.5}, {"share": 0.5, "priority": 1}],
        },
    },
    {
        "disaggregation": {"prefill": {}, "decode": {}},
        "workload": {"request_rate": 1, "num_prompts": 20, "output_len": 20},
    },
]


@pytest.mark.parametrize("part", [KINDS_OF_PLAN[i] for i in (0, 5, 9)], ids=["closed loop", "illegal layout", "two pools"])
def test_any_kind_of_plan_becomes_a_document(part):
    answer = plan(Scenario.model_validate(part), effort="quick")
    document = export.document(answer.to_dict(), export.Extras())
    assert [s.number for s in document.sections] == list(range(1, 12))
    for kind in ("md", "xlsx", "csv"):
        assert export.render(document, kind)


@pytest.mark.slow
@pytest.mark.parametrize("part", KINDS_OF_PLAN)
def test_what_ifs_stand_for_any_kind_of_plan(part):
    answer = plan(Scenario.model_validate(part), effort="quick")
    extras = export.extras_of(answer)
    document = export.document(answer.to_dict(), extras)
    assert bool(extras.levers) == (answer.fits and answer.load is not None)
    drawn = answer.memory is not None
    assert (b"<svg" in export.render(document, "html")) == drawn, "a layout that is not possible has nothing to draw"
    again = export.document(
        {**answer.to_dict(), "extras": extras.to_dict()}, export.extras_of({**answer.to_dict(), "extras": extras.to_dict()})
    )
    assert again == document


def test_figures_keep_three_digits_and_money_its_cents():
    shown = [
        figures.show(v, u) for v, u in [(100.75, "usd"), (0.39, "usd"), (0.0024, "usd"), (7300, "usd"), (999.999, "usd"), (-3.2, "usd")]
    ]
    assert shown == ["$100.75", "$0.39", "$0.00240", "$7,300", "$1,000", "−$3.20"]
    assert [figures.show(v, "ms") for v in (0.0151, 0.00756, 12.3456, 0)] == ["15.1 ms", "7.56 ms", "12,346 ms", "0 ms"]
    assert [figures.show(v, "s") for v in (9.999, 99.96, 0.81)] == ["10.0 s", "100 s", "0.810 s"]
    assert figures.show(0.563, "share") == "56.3%"
    assert figures.show(405e9, "billion") == "405 B"
    assert figures.show(float("nan"), "s") == figures.show(None, "s") == figures.ABSENT
    assert figures.show(1e300, "count").endswith("000")
    assert figures.show(True) == "yes"


def test_write_names_the_format_by_the_ending_and_leaves_nothing_half_done(made, tmp_path):
    answer, extras, _ = made
    target = tmp_path / "plan.md"
    export.write(answer, target, extras)
    assert target.read_bytes() == export.build(answer, "md", extras)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.md"]
    with pytest.raises(InputError, match=r"\.json, \.html, \.md"):
        export.write(answer, tmp_path / "plan.docx", extras)
    with pytest.raises(OSError, match="No such file"):
        export.write(answer, tmp_path / "missing" / "plan.csv", extras)


def test_cover_is_what_the_author_says_and_nothing_else(made):
    answer, extras, plain = made
    assert {r[0].text: r[1].text for r in plain.head.rows}["Status"] == "draft"
    signed = export.document(
        answer, extras, export.Cover(author="A. Writer", status="approved", horizon="two quarters", dated="2026-12-01")
    )
    head = {r[0].text: r[1].text for r in signed.head.rows}
    assert (head["Author"], head["Status"], head["Horizon"], head["Date"]) == ("A. Writer", "approved", "two quarters", "2026-12-01")


def test_sheet_names_fit_excel(made):
    for section in made[2].sections:
        assert len(f"{section.number} {section.title}"[:31]) <= 31
    assert len(sheets.JSON_SHEET) <= 31


def test_bands_and_nearest_measurements_stand_beside_the_figures(made):
    answer, extras, _ = made
    ttft, usd = answer["latency"]["ttft_s"]["mean"], answer["cost"]["usd_per_mtok_output"]
    measured = {"model": "llama-3.1-8b", "gpus": 1, "gpu": "h100-sxm", "engine": "vllm", "load": "rate 4", "metric": "tpot"}
    confidence = {
        "grade": "A",
        "fidelity": "calibrated",
        "bands": {"ttft": [ttft / 2, ttft * 2], "usd": [usd * 0.8, usd * 1.3]},
        "one_sided": {"ttft": "at least"},
        "nearest_measured": [measured | {"measured": 0.010, "predicted": 0.009, "error": -0.1, "source": "a log", "date": "2026-08-01"}],
    }
    found = {t.slug: t for t in export.document({**answer, "confidence": confidence}, extras).tables()}
    assert [c.text for c in found["bands"].rows[0]][3] == "the point is a bound: at least"
    assert [c.text for c in found["nearest"].rows[0]][2:5] == ["10.0 ms", "9.00 ms", "−10.0%"]
    detail = {row[0].text: row[2].text for row in found["decision"].rows}
    assert "with the model's error" in detail["Time to first token, p95"]
    assert figures.show(usd * 1.3, "usd") in detail["Cost per million tokens"]
    assert {row[6].text for row in found["acceptance"].rows if row[2].text.startswith("TTFT")} <= {
        "the plan's band",
        "up to the promise, tighter than the band",
    }


def test_a_full_fleet_is_not_given_a_clean_bill(made):
    answer, extras, _ = made
    full = {**answer, "throughput": {**answer["throughput"], "utilization": 0.6}}
    verdict = export.document(full, extras).sections[0].blocks[0]
    assert verdict.tone == "warning"
    assert "close to saturation" in verdict.text


def test_a_missed_promise_is_not_to_be_bought_and_the_fleet_that_holds_it_is_priced(made):
    answer, extras, _ = made
    scenario = {**answer["scenario"], "slo": {**answer["scenario"]["slo"], "ttft_s": answer["latency"]["ttft_s"]["p95"] / 2}}
    flat = {**scenario, "fleet": {**scenario["fleet"], "demand_curve": None}}
    words = "7 replicas (7 × h100-sxm)"
    fleet = {"words": words, "changes": [["fleet.replicas", 7]], "gpus": 7, "usd_per_month": 12345.0, "at_least": False}
    document = export.document({**answer, "scenario": flat, "larger_fleet": fleet}, extras)
    verdict = document.sections[0].blocks[0]
    assert verdict.tone == "bad"
    assert verdict.text.startswith("Do not buy this as it is: at the planned load it misses a promise at p95: time to first token")
    assert verdict.text.endswith("7 replicas (7 × h100-sxm) would hold it for $12,345 a month.")
    for kind in ("html", "md"):
        assert "$12,345" in export.render(document, kind).decode()
    rows = {row[0].text: row for row in {t.slug: t for t in document.tables()}["decision"].rows}
    assert "Buy" not in rows
    assert rows["What would hold the promises"][1].text == "7 replicas (7 × h100-sxm)"
    assert "$12,345" in rows["What would hold the promises"][2].text


@pytest.mark.parametrize("stated", [7, [], {}, {"words": 3, "gpus": 1}, {"words": "2 replicas", "gpus": "many"}, {"new": 1, "words": "x"}])
def test_a_larger_fleet_stated_in_another_way_is_left_out(made, stated):
    answer, extras, _ = made
    slo = {**answer["scenario"]["slo"], "ttft_s": answer["latency"]["ttft_s"]["p95"] / 2}
    scenario = {**answer["scenario"], "slo": slo, "fleet": {**answer["scenario"]["fleet"], "demand_curve": None}}
    document = export.document({**answer, "scenario": scenario, "larger_fleet": stated}, extras)
    assert document.sections[0].blocks[0].text.startswith("Do not buy this as it is")


def test_volumes_and_break_even_stand_on_one_rate(made):
    answer, _, document = made
    found = {t.slug: t for t in document.tables()}
    planned = answer["cost"]["usd_per_hour"] / 3600 / answer["cost"]["usd_per_request"] * 86_400
    assert figures.show(planned, "requests_day") in {row[0].text: row[2].text for row in found["decision"].rows}["Break-even with it"]
    for row in found["break-even"].rows:
        cheaper = answer["cost"]["break_even_requests_per_day"][row[0].text]["at_hit_rate"] <= planned
        assert row[6].text == ("yes" if cheaper else "no")


@pytest.mark.slow
def test_classes_and_pools_have_tables_of_their_own():
    classes = [{"share": 0.5}, {"share": 0.5, "priority": 1, "slo": {"ttft_s": 2.0, "tpot_s": None, "percentile": 90}}]
    load = {"request_rate": 2, "num_prompts": 60, "output_len": 30}
    answer = plan(Scenario.model_validate({"workload": load | {"priority_classes": classes}}), effort="quick")
    found = {t.slug: t for t in export.document(answer.to_dict(), export.Extras()).tables()}
    assert [row[0].text for row in found["promises-by-class"].rows] == ["class 1", "class 1", "class 2"]
    pools = plan(Scenario.model_validate({"workload": load, "disaggregation": {"prefill": {}, "decode": {}}}), effort="quick")
    found = {t.slug: t for t in export.document(pools.to_dict(), export.Extras()).tables()}
    assert float(found["transfers"].rows[1][1].number) > 0


def test_a_spreadsheet_opens_on_the_answer(files):
    front = openpyxl.load_workbook(io.BytesIO(files["xlsx"])).worksheets[0]
    told = [str(row[0]) for row in front.iter_rows(values_only=True) if row[0]]
    assert told.index("Buy") < told.index("Status")
    assert told.index("Decision") < 6
