"""Change → link → reload → Back, hostile links, a click on a chart, downloads, two tabs, keyboard, contrast, narrow screens."""

import csv
import io
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import go, settle
from playwright.sync_api import Page, expect

from planner import export, links, presets
from planner.scenario import Scenario

SMALL = "workload.num_prompts=60"


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


def test_the_keyboard_reaches_and_moves_the_controls(page: Page):
    go(page, f"/?{SMALL}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").lower().startswith("skip to main content")
    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")
    settle(page)
    assert query(page)["parallel.tensor_parallel_size"] == ["2"]
    tab = page.get_by_role("tab", name="Explain every number")
    tab.focus()
    tab.press("Enter")
    settle(page)
    summary = page.locator("summary", has_text="Memory of one GPU")
    summary.focus()
    summary.press("Enter")
    settle(page)
    expect(page.locator("details[open]").first).to_contain_text("weights")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_themes(page: Page, scheme: str):
    page.emulate_media(color_scheme=scheme)
    go(page, f"/?{SMALL}")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 60
    assert any(kind == "chart" for kind, *_ in found)
    weak = [row for row in found if row[1] < 4.5]
    assert weak == []


@pytest.mark.parametrize("path", ["/", "/simulate", "/compare", "/fleet", "/lessons", "/accuracy", "/assumptions"])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, path: str):
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, f"{path}?{SMALL}")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert page.evaluate("(m => m.scrollWidth <= m.clientWidth + 1)(document.querySelector('[data-testid=stMain]'))")


def test_charts_and_tables_have_alternatives_and_fields_have_labels(page: Page):
    go(page, f"/?{SMALL}")
    assert page.evaluate(NAMELESS_FIELDS) == []
    charts = page.get_by_test_id("stVegaLiteChart").count()
    assert charts >= 3
    assert page.evaluate(NAMED_CHARTS) == charts


def test_a_plan_that_does_not_fit_offers_no_price_and_a_way_out(page: Page):
    go(page, f"/?{SMALL}&model.name=llama-3.1-405b")
    expect(page.get_by_text("does not fit").first).to_be_visible()
    expect(page.get_by_test_id("stMetric")).to_have_count(0)
    assert page.get_by_test_id("stMain").inner_text().count("$") == 0
    assert page.get_by_test_id("stVegaLiteChart").count() == 1


NAMELESS_FIELDS = """
() => [...document.querySelectorAll('input, textarea')]
  .filter(e => !e.hidden && e.type !== 'file' && !e.labels?.length && !e.ariaLabel && !e.getAttribute('aria-labelledby'))
  .map(e => e.outerHTML.slice(0, 120))
"""
NAMED_CHARTS = """
() => [...document.querySelectorAll('[data-testid=stVegaLiteChart]')]
  .filter(c => c.getAttribute('aria-label') || c.querySelector('[aria-label]')).length
"""
CONTRASTS = """
() => {
  const parse = c => { const m = c.match(/[\\d.]+/g); return m ? m.map(Number) : null };
  const light = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const over = (top, under) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a)) };
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05) };
  const ground = e => {
    const layers = [];
    for (let n = e; n; n = n.parentElement) {
      const c = parse(getComputedStyle(n).backgroundColor);
      if (c && (c[3] ?? 1) > 0) { layers.push(c); if ((c[3] ?? 1) === 1) break }
    }
    return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255]);
  };
  const rows = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, text = n.textContent.trim();
    if (!text || !e || e.closest('[data-testid=stHeader], script, style, [disabled], [aria-disabled=true], svg title, svg desc')) continue;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || !box.height || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const chart = e.closest('svg') && e.closest('[data-testid=stVegaLiteChart]');
    const paint = parse(chart ? style.fill : style.color);
    if (!paint || paint[3] === 0) continue;
    const under = ground(chart || e.closest('[data-testid=stSlider]') || e);  // a slider's value floats above its thumb
    rows.push([chart ? 'chart' : 'page', Math.round(ratio(over(paint, under), under) * 100) / 100, text.slice(0, 40)]);
  }
  return rows;
}
"""
"""[where, contrast, text] of every text on the page that can be seen."""
