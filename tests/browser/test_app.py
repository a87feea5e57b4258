"""Change → link → reload → Back, hostile links, a click on a chart, downloads, two tabs, an older plan, drills."""

import csv
import io
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from conftest import go, settle
from playwright.sync_api import Page, expect

from planner import export, links, presets
from planner.scenario import Scenario
from planner.views import verdict

SMALL = "workload.num_prompts=60"
OLDER = Path(__file__).parents[1] / "data" / "documents" / "plan-and-what-ifs.json"


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query, keep_blank_values=True)


def test_a_change_is_in_the_link_and_survives_a_reload(page: Page):
    go(page, f"/?{SMALL}")
    box = page.get_by_label("Requests/s", exact=True)
    box.fill("7")
    box.press("Enter")
    settle(page)
    expect(page).to_have_url(re.compile(r"workload\.request_rate=7(\D|$)"))
    page.reload()
    settle(page)
    expect(page.get_by_label("Requests/s", exact=True)).to_have_value("7.00")
    scenario, notes = links.decode(page.url)
    assert notes == ()
    assert scenario.workload.request_rate == 7


def test_the_scenario_follows_from_page_to_page_and_back_restores_links(page: Page):
    go(page, "/?preset=chat-70b-2xh100&hardware.overrides.memory_gib=141")
    first = query(page)
    assert first["model.name"] == ["llama-3.3-70b"]
    for title in ("Simulate", "Compare", "Assumptions"):
        page.get_by_role("link", name=title, exact=True).first.click()
        settle(page)
        assert query(page) == first, title
    page.go_back()
    settle(page)
    expect(page).to_have_url(re.compile("/compare"))
    assert query(page) == first
    go(page, f"/?{SMALL}&precision.weights=fp8")
    expect(page.get_by_text("llama-3.1-8b in fp8").first).to_be_visible()


def test_a_hostile_link_is_cleaned_and_fetches_nothing(page: Page):
    go(
        page,
        f"/?{SMALL}&hardware.gpu=![a](//host.invalid/x)&engine.max_num_seqs=7.5&model.name=&name=![n](//host.invalid/n)&zz=[l](//host.invalid)",
    )
    expect(page.get_by_text("cannot be used").first).to_be_visible()
    assert "hardware.gpu" not in query(page)
    assert "engine.max_num_seqs" not in query(page)
    expect(page.get_by_test_id("stMetric")).to_have_count(6)
    assert page.locator("img[src*='host.invalid'], a[href*='host.invalid']").count() == 0


def test_a_click_on_the_frontier_adopts_the_point(page: Page):
    go(page, f"/?{SMALL}")
    before = query(page)
    chart = page.get_by_test_id("stVegaLiteChart").nth(1)
    chart.scroll_into_view_if_needed()
    points = chart.locator("svg .mark-symbol path[aria-roledescription='point']")
    if points.count() == 0:
        points = chart.locator("svg g.mark-symbol path")
    points.nth(points.count() // 2).click(force=True)
    settle(page)
    after = query(page)
    assert after != before
    assert "engine.max_num_seqs" in after


def test_downloads_parse_to_the_same_scenario(page: Page):
    go(page, f"/?{SMALL}&precision.weights=fp8")
    expected = links.decode(page.url)[0]
    page.get_by_text("Share and export").click()
    settle(page)
    for label, kind in (
        ("JSON", "json"),
        ("Spreadsheet", "xlsx"),
        ("Markdown", "md"),
        ("Capacity plan (HTML", "html"),
        ("All tables", "zip"),
        ("CSV", "csv"),
    ):
        with page.expect_download(timeout=120_000) as caught:
            page.get_by_role("button", name=re.compile("^" + re.escape(label))).click()
        data = caught.value.path().read_bytes()
        if kind == "csv":
            assert len(list(csv.reader(io.StringIO(data.decode("utf-8-sig"))))) > 10
        else:
            assert export.read(data, f"plan.{kind}").scenario == expected, kind
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download scenario").click()
    assert presets.from_text(caught.value.path().read_bytes())[0] == expected
    shown = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").first.inner_text().strip()
    assert links.decode(shown)[0].model_copy(update={"price": Scenario().price}) == expected


def test_two_tabs_do_not_mix(page: Page):
    go(page, f"/?{SMALL}&precision.weights=fp8")
    other = page.context.new_page()
    go(other, f"/?{SMALL}&precision.weights=int4")
    page.get_by_label("Replicas", exact=True).fill("3")
    page.get_by_label("Replicas", exact=True).press("Enter")
    settle(page)
    settle(other)
    assert query(page)["precision.weights"] == ["fp8"]
    assert query(other)["precision.weights"] == ["int4"]
    assert "fleet.replicas" not in query(other)
    expect(other.get_by_text("llama-3.1-8b in int4").first).to_be_visible()


def test_a_plan_that_does_not_fit_offers_no_price_and_a_way_out(page: Page):
    go(page, f"/?{SMALL}&model.name=llama-3.1-405b")
    expect(page.get_by_text("does not fit").first).to_be_visible()
    expect(page.get_by_test_id("stMetric")).to_have_count(0)
    assert page.get_by_test_id("stMain").inner_text().count("$") == 0
    assert page.get_by_test_id("stVegaLiteChart").count() == 1


def test_a_chosen_question_is_in_the_link_with_all_its_settings(page: Page):
    go(page, f"/?{SMALL}")
    box = page.get_by_label("Start from a question", exact=True)
    box.fill("speculation")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"speculative\.acceptance_rates="))  # a setting whose box was not there before
    page.reload()
    settle(page)
    assert links.decode(page.url) == (presets.load("speculation-70b"), ())


def test_how_requests_come_is_a_choice_that_the_link_keeps(page: Page):
    go(page, f"/?{SMALL}")
    page.get_by_role("radio", name="Clients").click()
    settle(page)
    expect(page.get_by_label("Requests/s", exact=True)).to_have_count(0)
    page.get_by_label("Clients", exact=True).fill("6")
    page.get_by_label("Clients", exact=True).press("Enter")
    expect(page).to_have_url(re.compile(r"workload\.max_concurrency=6"))
    page.reload()
    settle(page)
    load = links.decode(page.url)[0].workload
    assert (load.request_rate, load.max_concurrency) == (None, 6)
    page.get_by_role("radio", name="Both").click()
    expect(page).to_have_url(re.compile(r"workload\.request_rate=4"))
    load = links.decode(page.url)[0].workload
    assert (load.request_rate, load.max_concurrency) == (4, 6)


def test_an_older_plan_is_compared_with_today(page: Page):
    older = export.read(OLDER.read_bytes(), OLDER.name).scenario
    go(page, f"/compare?{SMALL}")
    page.get_by_test_id("stFileUploader").last.locator("input[type=file]").set_input_files(OLDER)
    expect(page.get_by_text(re.compile(r"A million output tokens cost .* then, .* now"))).to_be_visible(timeout=90_000)
    page.get_by_role("button", name="Adopt its scenario").click()
    expect(page.get_by_text(verdict.title({}, older)).first).to_be_visible(
        timeout=30_000
    )  # all of the page, not only the part with the button
    assert query(page)["name"] == [older.name]


def test_a_claim_starts_empty_and_an_example_is_one_click_away(page: Page):
    go(page, f"/accuracy?{SMALL}")
    expect(page.get_by_text("Type in what is claimed")).to_be_visible()
    page.get_by_role("button", name=re.compile("Try an example")).click()
    settle(page)
    assert float(query(page)["claim.tokens_per_s"][0]) == 335
    expect(page.get_by_text("imply a batch").first).to_be_visible()


def test_a_drill_runs_when_asked_and_says_what_it_showed(page: Page):
    go(page, f"/fleet?{SMALL}&fleet.startup_s=5&fleet.tab=Failure+drills")
    page.get_by_role("button", name="Run the drill").click()
    expect(page.get_by_text(re.compile("One of 1 replica goes: .* keep the promise")).first).to_be_visible(timeout=60_000)
    settle(page)
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(1)


def test_a_recommended_fleet_is_adopted_by_the_whole_page(page: Page):
    go(page, f"/recommend?{SMALL}&recommend.gpus=l40s")
    page.get_by_role("button", name="Find the cheapest fleets").click()
    adopt = page.get_by_role("button", name=re.compile("^Adopt ")).first
    expect(adopt).to_be_visible(timeout=120_000)
    settle(page)
    adopt.click()
    expect(page.get_by_text("You have adopted one of these")).to_be_visible(timeout=30_000)
    assert query(page)["hardware.gpu"] == ["l40s"]
    expect(page.get_by_text(re.compile(r"^llama-3.1-8b in .* × l40s")).first).to_be_visible()


def test_the_headers_of_the_readme_let_the_page_work(page: Page):
    told = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    block = re.search(r"```\n(Content-Security-Policy: .*?)```", told, re.DOTALL)
    assert block is not None
    headers = dict(line.split(": ", 1) for line in block[1].strip().splitlines())

    def proxied(route):
        answer = route.fetch()  # unpacked by now, so neither its packing nor its length holds any more
        kept = {name: value for name, value in answer.headers.items() if name not in ("content-encoding", "content-length")}
        route.fulfill(response=answer, headers=kept | headers)

    page.route(lambda address: "?" in address, proxied)  # the page itself: its policy rules whatever it loads
    page.goto(f"/?{SMALL}")
    expect(page.get_by_test_id("stMetric")).to_have_count(6, timeout=60_000)  # settle() would run text as a script, which is forbidden here
    expect(page.locator("[data-testid=stVegaLiteChart] svg text").first).to_be_attached(timeout=30_000)
    assert page.evaluate("window.__streamlit.BACKEND_BASE_URL").endswith("/")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--planner-ring')")
