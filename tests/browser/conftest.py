"""A server of our own and a Chromium of the machine's for tests of what only a browser shows."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
QUIET_MS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser" in str(item.path).replace(os.sep, "/"):
            item.add_marker(pytest.mark.browser)


@contextmanager
def running_app() -> Iterator[str]:
    """The app on a free port of this machine; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true"]
    process = subprocess.Popen([*command, "--server.fileWatcherType=none"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/_stcore/health")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The app, once for all tests."""
    with running_app() as address:
        yield address


def _wait_for(address: str) -> None:
    for _ in range(150):
        try:
            urllib.request.urlopen(address, timeout=1).read()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"{address} did not answer")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    with sync_playwright() as playwright:
        # A page that a test answers itself counts as one from elsewhere, which may not reach this machine's server otherwise.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-features=LocalNetworkAccessChecks"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    """A page of its own; afterwards no request may have left this machine and no error may be on the console."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=server, accept_downloads=True)
    opened = context.new_page()
    outside: list[str] = []
    errors: list[str] = []
    opened.on("request", lambda request: None if request.url.startswith((server, "data:", "blob:")) else outside.append(request.url))
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert outside == []
    assert errors == []


def settle(page: Page) -> None:
    """Wait until the script and its fragments rest."""
    page.wait_for_timeout(QUIET_MS)
    page.wait_for_selector(IDLE, timeout=60_000)
    page.wait_for_function("document.querySelectorAll('[data-testid=stSkeleton]').length === 0", timeout=60_000)
    page.wait_for_timeout(QUIET_MS)
    page.wait_for_selector(IDLE, timeout=60_000)


def go(page: Page, path: str) -> None:
    """Open an address and wait for its figures."""
    page.goto(path)
    settle(page)
