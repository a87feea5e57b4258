"""Keyboard, focus, contrast, phones, print, names for screen readers: what only a browser can measure."""

import pytest
from conftest import go, settle
from playwright.sync_api import Page, expect

SMALL = "workload.num_prompts=60"
STOPS_OF_THE_SIDEBAR = 17
"""Skip link and settings up to the percentile; help icons would double it."""


def test_the_keyboard_reaches_and_moves_the_controls(page: Page):
    go(page, f"/?{SMALL}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").lower().startswith("skip to main content")
    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")
    settle(page)
    assert "parallel.tensor_parallel_size=2" in page.url
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
def test_every_stop_of_the_keyboard_is_a_setting_with_a_ring_that_stands_out(page: Page, scheme: str):
    page.emulate_media(color_scheme=scheme)
    go(page, f"/?{SMALL}")
    seen = []
    for _ in range(STOPS_OF_THE_SIDEBAR):
        page.keyboard.press("Tab")
        page.wait_for_timeout(60)
        seen.append(page.evaluate(FOCUS))
    assert [stop for stop in seen if stop["name"].startswith("Help for")] == []
    assert len({stop["name"] for stop in seen}) == STOPS_OF_THE_SIDEBAR  # no trap, nothing twice
    assert [stop for stop in seen if stop["width"] < 2 or stop["contrast"] < 3] == []


def test_words_and_settings_are_explained_without_hovering(page: Page):
    go(page, f"/?{SMALL}")
    assert page.evaluate("[...document.querySelectorAll('[data-testid=stMetric] button')].filter(b => b.tabIndex >= 0).length") == 0
    folded = page.locator("summary", has_text="What the words mean")
    folded.focus()
    folded.press("Enter")
    settle(page)
    expect(page.get_by_test_id("stSidebar").get_by_text("From the arrival of a request to its first token").first).to_be_visible()


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
def test_a_phone_hides_nothing_behind_its_edge(page: Page, path: str):
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, f"{path}?{SMALL}")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert page.evaluate("(m => m.scrollWidth <= m.clientWidth + 1)(document.querySelector('[data-testid=stMain]'))")
    assert page.evaluate(TABS_CUT) == []
    assert page.evaluate(CHART_TEXT_CUT) == []
    assert page.evaluate(TABLES_CUT) == []


def test_charts_and_tables_have_alternatives_and_fields_have_labels(page: Page):
    go(page, f"/?{SMALL}")
    assert page.evaluate(NAMELESS_FIELDS) == []
    charts = page.get_by_test_id("stVegaLiteChart").count()
    assert charts >= 3
    assert page.evaluate(NAMED_CHARTS) == charts
    assert page.evaluate("[...document.querySelectorAll('[aria-label]')].filter(e => e.ariaLabel.includes('\\\\')).length") == 0


def test_a_printed_page_is_the_plan_without_its_controls(page: Page):
    go(page, f"/?{SMALL}")
    page.emulate_media(media="print")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    expect(page.get_by_test_id("stHeader")).to_be_hidden()
    expect(page.get_by_test_id("stMetric").first).to_be_visible()
    assert page.evaluate("(m => m.clientHeight >= m.scrollHeight - 1)(document.querySelector('[data-testid=stMain]'))")
    assert page.pdf().count(b"/Type /Page\n") + page.pdf().count(b"/Type /Page ") != 1  # all of it, not the first screen


COLOUR = """
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
"""
FOCUS = (
    "() => {"
    + COLOUR
    + """
  const e = document.activeElement;
  const name = e.ariaLabel || e.labels?.[0]?.innerText || e.innerText || '';
  for (let n = e, i = 0; n && i < 4; n = n.parentElement, i++) {
    const s = getComputedStyle(n);
    if (s.outlineStyle === 'solid')
      return { name, width: parseFloat(s.outlineWidth), contrast: ratio(parse(s.outlineColor), ground(n.parentElement)) };
  }
  return { name, width: 0, contrast: 0 };
}
"""
)
"""Name of what has the focus, and its ring: width in pixels, contrast with what is behind it."""
TABS_CUT = """
() => [...document.querySelectorAll('[role=tab]')]
  .filter(t => t.getBoundingClientRect().right > window.innerWidth + 1)
  .map(t => t.innerText)
"""
TABLES_CUT = """
() => [...document.querySelectorAll('[data-testid=stTable] *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 200
  && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)).map(e => e.innerText.slice(0, 60))
  .concat([...document.querySelectorAll('table.planner-wide td')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText))
"""
"""Tables of which a part can be seen by scrolling sideways only, and cells of cards that run into their neighbours."""
CHART_TEXT_CUT = """
() => [...document.querySelectorAll('[data-testid=stVegaLiteChart] svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')]
    .filter(t => t.textContent.trim() && t.checkVisibility({ opacityProperty: true }))
    .map(t => [t.textContent, t.getBoundingClientRect()])
    .filter(([, box]) => box.width && (box.left < frame.left - 4 || box.right > frame.right + 4 || box.top < frame.top - 4
      || box.bottom > frame.bottom + 4))
    .map(([text]) => text);
})
"""
NAMELESS_FIELDS = """
() => [...document.querySelectorAll('input, textarea')]
  .filter(e => !e.hidden && e.type !== 'file' && !e.labels?.length && !e.ariaLabel && !e.getAttribute('aria-labelledby'))
  .map(e => e.outerHTML.slice(0, 120))
"""
NAMED_CHARTS = """
() => [...document.querySelectorAll('[data-testid=stVegaLiteChart]')]
  .filter(c => c.getAttribute('aria-label') || c.querySelector('[aria-label]')).length
"""
CONTRASTS = (
    "() => {"
    + COLOUR
    + """
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
)
"""[where, contrast, text] of every text on the page that can be seen."""
