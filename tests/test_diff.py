"""What changed between two plans, and what several plans add up to."""

import json
from pathlib import Path

import pytest

from planner import export
from planner.export.diff import diff
from planner.export.fleet_document import fleet_document
from planner.problems import InputError

KEPT = Path(__file__).parent / "data" / "documents"


@pytest.fixture
def plan():
    return json.loads((KEPT / "plan-and-what-ifs.json").read_text("utf-8"))


def changed(plan, **paths):
    other = json.loads(json.dumps(plan))
    for path, value in paths.items():
        *parents, last = path.split("__")
        at = other
        for key in parents:
            at = at[key]
        at[last] = value
    return other


def test_the_same_plan_has_no_difference(plan):
    found = diff(plan, changed(plan))
    assert found.same
    assert found.sentence == "Nothing changed."
    assert found.tables() == ()


def test_figures_inputs_and_findings_are_named_with_their_ratio(plan):
    month = plan["cost"]["usd_per_month"]
    problem = {"code": "stale_price", "severity": "warning", "field": "", "message": "old price", "remedy": ""}
    other = changed(
        plan,
        scenario__price__usd_per_gpu_hour=1.5,
        cost__usd_per_month=month * 0.75,
        problems=[problem],
        memory__fits=plan["memory"]["fits"],
    )
    found = diff(plan, other)
    assert [(c.name, c.before, c.after) for c in found.inputs] == [("price.usd_per_gpu_hour", "null", "1.5")]
    assert [(c.name, c.ratio) for c in found.figures] == [("Cost per month", pytest.approx(0.75))]
    assert "warning: old price" in found.findings_new
    assert set(found.findings_gone) == {f"{p['severity']}: {p['message']}" for p in plan["problems"]}
    assert found.sentence.startswith("Cost per month went from $")
    assert "(-25%) after the input price.usd_per_gpu_hour (null → 1.5) changed." in found.sentence
    assert {t.slug for t in found.tables()} == {"diff-figures", "diff-inputs", "diff-findings"}
    assert "Cost per month" in found.text()
    json.dumps(found.to_dict(), allow_nan=False)


def test_only_data_or_only_the_planner_may_have_changed(plan):
    other = changed(plan, cost__usd_per_month=plan["cost"]["usd_per_month"] * 1.2)
    assert diff(plan, other).sentence.endswith("the planner itself changed.")
    row = next(p for p in other["provenance"] if p["kind"] != "user" and isinstance(p["value"], float))
    row["value"] *= 2
    found = diff(plan, other)
    assert [c.name for c in found.data] == [row["quantity"]]
    assert found.data[0].ratio == pytest.approx(2)
    assert diff(plan, changed(plan, scenario__name="another")).sentence == "the input name changed, and no figure with them."


def test_a_sum_in_another_order_is_no_news(plan):
    month = plan["cost"]["usd_per_month"]
    assert diff(plan, changed(plan, cost__usd_per_month=month * (1 + 1e-12))).same


def test_an_older_plan_without_a_figure_is_compared_all_the_same(plan):
    other = json.loads(json.dumps(plan))
    del other["throughput"]
    other["latency"] = None
    found = diff(plan, other)
    assert any(c.name == "TTFT p95" and c.after == "–" for c in found.figures)


def test_plans_add_up(plan):
    other = changed(plan, scenario__name="Code completion", scenario__fleet__replicas=5)
    together = fleet_document([plan, other], "Two services")
    tables = {t.slug: t for t in together.tables()}
    total = {row[0].text: row[1] for row in tables["fleet-sum"].rows}
    assert total["Cost per month, planned"].number == export.figures.cell(2 * plan["cost"]["usd_per_month"], "usd").number
    assert total["GPUs paid for"].number == str(2 * plan["cost"]["gpus"])
    serving = {row[0].text: row[1].number for row in tables["purchase"].rows}
    assert serving == {"h100-sxm": "7"}
    assert [row[1].text for row in tables["services"].rows] == ["Chat for support staff", "Code completion"]
    assert float(tables["fleet-bill"].rows[0][2].number) == 50.0
    for kind in export.KINDS:
        assert export.render(together, kind)
    with pytest.raises(InputError, match="several plans"):
        export.read(export.render(together, "html"), "fleet.html")
    with pytest.raises(InputError, match="at least one"):
        fleet_document([])


def test_the_fleet_document_names_what_is_not_ready(plan):
    unfit = changed(plan, memory__fits=False, scenario__name="Too large")
    together = fleet_document([plan, unfit])
    assert "Too large" in together.sections[0].blocks[0].text
