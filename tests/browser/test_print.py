"""The HTML document in a real browser: no request leaves it, nothing runs off the page, it prints to a clean A4 PDF."""

import json
import re
import zlib
from pathlib import Path

import pytest

from planner import export

KEPT = Path(__file__).parents[1] / "data" / "documents"
A4_POINTS = (595, 842)

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    plan = json.loads((KEPT / "plan-and-what-ifs.json").read_text("utf-8"))
    target = tmp_path_factory.mktemp("document") / "plan.html"
    export.write(plan, target)
    return target


@pytest.fixture
def page(browser, page_file):
    opened = browser.new_page(viewport={"width": 794, "height": 1123})
    opened.requests, opened.messages = [], []
    opened.on("request", lambda request: opened.requests.append(request.url))
    opened.on("console", lambda message: opened.messages.append(message.text))
    opened.on("pageerror", lambda error: opened.messages.append(str(error)))
    opened.goto(page_file.as_uri())
    yield opened
    opened.close()


def test_no_request_leaves_the_file(page, page_file):
    assert page.requests == [page_file.as_uri()]
    assert page.messages == []
    assert page.locator("section h2").count() == 12
    assert page.locator("figure.chart svg").count() >= 7


@pytest.mark.parametrize("width", [794, 1280])
def test_nothing_runs_off_the_page(page, width):
    page.set_viewport_size({"width": width, "height": 1123})
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        wider = page.evaluate(
            "() => [...document.querySelectorAll('main *')].filter(e => !e.closest('svg'))"
            ".filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert wider == [], media


def test_charts_are_drawn_inside_their_frames(page):
    sizes = page.evaluate("() => [...document.querySelectorAll('figure.chart svg')].map(s => [s.getBBox().width, s.getBBox().height])")
    assert all(width > 200 and height > 30 for width, height in sizes)
    labels = page.evaluate("() => [...document.querySelectorAll('figure.chart svg text')].map(t => t.textContent)")
    assert len(labels) > 60
    assert not [text for text in labels if "undefined" in text or "NaN" in text]


def test_it_prints_to_a4(page):
    pdf = page.pdf(prefer_css_page_size=True, print_background=True)
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    boxes = re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", pdf + inflated(pdf))
    assert boxes
    for width, height in boxes:
        assert abs(float(width) - A4_POINTS[0]) < 2
        assert abs(float(height) - A4_POINTS[1]) < 2
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf + inflated(pdf)))
    assert 6 <= pages <= 30


def inflated(pdf):
    """Object streams unpacked, where a newer writer may keep page objects."""
    parts = []
    for stream in re.findall(rb"/ObjStm.*?stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        parts.append(zlib.decompress(stream))
    return b"".join(parts)


def test_the_decision_stands_on_the_first_page(page):
    page.emulate_media(media="print")
    bottom = page.evaluate("() => document.getElementById('table-decision').getBoundingClientRect().bottom")
    # 297 mm less the margins of the page, at 96 dots per inch.
    assert bottom < (297 - 34) / 25.4 * 96
