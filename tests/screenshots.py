"""Screenshots of every page, state and theme: python tests/screenshots.py [--out DIR] [--only TEXT]

They land in screenshots/, which git ignores; the pictures of the README are copied from there by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parent / "browser"))
from conftest import CHROMIUM, ROOT, running_app, settle

CHAT = "preset=chat-70b-2xh100"
PAGES = {
    "plan": f"/?{CHAT}",
    "simulate": f"/simulate?{CHAT}",
    "compare": f"/compare?{CHAT}&compare.b=precision.kv_cache%3Dfp8&compare.c=hardware.gpu%3Dh200-sxm",
    "recommend": f"/recommend?{CHAT}",
    "fleet": "/fleet?preset=week-of-demand-8b",
    "lessons": f"/lessons?{CHAT}",
    "accuracy": "/accuracy?preset=beacon-405b-8xh100-fp8&fidelity=calibrated",
    "assumptions": f"/assumptions?{CHAT}",
}
STATES = {
    "first-visit": "/",
    "does-not-fit": "/?model.name=llama-3.1-405b",
    "impossible-layout": "/?parallel.tensor_parallel_size=7",
    "overloaded": "/?workload.request_rate=200",
    "unstable": "/?preset=code-completion-8b",
    "low-confidence": "/?hardware.gpu=mi325x",
    "no-traffic": "/?workload.request_rate=0",
    "hostile-link": "/?hardware.gpu=![a](//host/x)&engine.max_num_seqs=7.5&zz=1",
    "clients": "/?preset=five-users-128k-70b",
    "trace-elsewhere": "/?workload.trace.name=mine&workload.trace.content_hash=" + "ab" * 32,
    "nothing-to-compare": "/compare",
    "constant-demand": "/fleet",
    "claim-checked": "/accuracy?claim.tokens_per_s=335&claim.batch=32",
    "worked-example": "/?preset=beacon-405b-8xh100-fp8",
}
LESSONS = {
    f"lesson-{key}": f"/lessons?{CHAT}&lesson={key}"
    for key in ("batching", "paging", "prefix", "speculation", "quantisation", "prefill", "price", "broken")
}
CLICKS = {
    "plan-one-step": (PAGES["plan"], "One step"),
    "plan-batch-table": (PAGES["plan"], "Batch table"),
    "plan-explained": (PAGES["plan"], "Explain every number"),
    "plan-shared": (PAGES["plan"], "Share and export"),
    "simulate-slowest": (PAGES["simulate"], "Slowest requests"),
    "simulate-against-load": (PAGES["simulate"], "Against load"),
    "fleet-how-to-pay": (PAGES["fleet"], "How to pay"),
    "fleet-own-or-api": ("/fleet?preset=self-host-or-api-70b", "Own fleet or API"),
    "fleet-replica-lost": (f"/fleet?{CHAT}&fleet.tab=Failure+drills", "Run the drill"),
    "fleet-demand-doubles": (f"/fleet?{CHAT}&fleet.tab=Failure+drills&fleet.drill=Demand+doubles", "Run the drill"),
    "fleet-floor-to-bill": (f"/fleet?{CHAT}", "From floor to bill"),
    "accuracy-measured": ("/accuracy", "Against measured rows"),
    "fleet-what-moves-it": ("/fleet?preset=self-host-or-api-70b", "What moves it"),
    "compare-levers": (f"/compare?{CHAT}", "Try every change"),
    "accuracy-speculation": ("/accuracy", "Speculation against"),
    "assumptions-worked": ("/assumptions", "Worked example"),
    "words": ("/", "What the words mean"),
    "recommend-found": (PAGES["recommend"], "Find the cheapest fleets"),
}
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}


def shoot(browser: Browser, address: str, path: str, click: str | None, theme: str, size: str, file: Path) -> None:
    """One picture of a whole page."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.goto(address + path)
    settle(page)
    if click:
        page.get_by_text(click).first.click()
        page.wait_for_timeout(1000)
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=300_000)
        settle(page)
    page.screenshot(path=file.with_suffix(".fold.png"))
    tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": min(max(int(tall), height), 5000)})
    settle(page)
    page.screenshot(path=file.with_suffix(".png"))
    context.close()


def main() -> None:
    """Make them all, or those whose name holds `--only`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    plain = {name: (path, None) for name, path in {**PAGES, **STATES, **LESSONS}.items()}
    wanted = [
        (name, path, click, theme, size)
        for name, (path, click) in {**plain, **CLICKS}.items()
        for theme in ("light", "dark")
        for size in SIZES
    ]
    with running_app() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name, path, click, theme, size in wanted:
            label = f"{name}-{theme}-{size}"
            if arguments.only in label:
                shoot(browser, address, path, click, theme, size, arguments.out / label)
                print(label, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
