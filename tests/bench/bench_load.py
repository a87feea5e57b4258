"""Browser-like sessions against the real server: `python tests/bench/bench_load.py --sessions 50 --seconds 300`.

Each session speaks Streamlit's own protocol over its own WebSocket, as a browser does: it moves number inputs of the sidebar, changes
pages, keeps the address bar's query, and lets the page's timer ask for the full plan. It first measures one user alone, then all.
Every session's scenario bears a name of its own, so a page that belongs to somebody else is seen at once.

Prints median and 95th percentile of the time from a change to the page's end, the ratio to one user's, errors, cross-talk, and the
server's memory over the run. Exits with 1 on any error or cross-talk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

ROOT = Path(__file__).resolve().parents[2]
CHANGES: dict[str, tuple[float, ...]] = {
    "engine.max_num_seqs": (32, 64, 128, 256),
    "engine.max_num_batched_tokens": (2048, 4096, 8192),
    "workload.request_rate": (1, 2, 3, 4, 5, 6),
    "workload.input_len": (256, 512, 1024, 1536),
    "workload.output_len": (128, 256, 384),
    "slo.ttft_s": (0.5, 1.0, 2.0),
}
PAGES = ("plan", "simulate", "compare", "fleet", "assumptions", "plan", "plan")
TITLE = re.compile(r"session number (\d+)")
LONGEST_S = 120.0


@dataclass
class Session:
    """One browser tab."""

    address: str
    number: int
    seed: int
    query: dict[str, str] = field(default_factory=dict)
    widgets: dict[str, Any] = field(default_factory=dict)
    """Number inputs on the page by their setting: (id, whether whole)."""
    states: dict[str, tuple[str, float]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    page: str = ""
    took_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    timers: dict[str, float] = field(default_factory=dict)
    """Interval of each fragment that runs by itself, s."""
    cached: dict[str, bytes] = field(default_factory=dict)
    runs: int = 0
    named: int = 0
    """Runs that showed the session's own name."""
    full_plans: int = 0
    ticks: int = 0
    """Runs of timers."""

    async def live(self, until: float, think_s: tuple[float, float], start_after_s: float = 0.0) -> None:
        await asyncio.sleep(start_after_s)
        draw = random.Random(self.seed)
        self.query = {"name": f"session number {self.number}"}
        url = self.address.replace("http", "ws", 1) + "/_stcore/stream"
        try:
            async with connect(url, origin=self.address, subprotocols=["streamlit"], max_size=None, open_timeout=60) as tab:
                await self._run(tab, first=True)
                while time.monotonic() < until:
                    await self._rest(tab, draw.uniform(*think_s))
                    if draw.random() < 0.15 and self.pages:
                        await self._run(tab, page=draw.choice(PAGES))
                    else:
                        known = [path for path in CHANGES if path in self.widgets]
                        if known:
                            path = draw.choice(known)
                            await self._run(tab, change=(path, draw.choice(CHANGES[path])))
        except (OSError, TimeoutError) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            self.errors.append(f"connection: {type(error).__name__}: {str(error)[:100]}")

    async def _rest(self, tab: Any, seconds: float) -> None:
        """Think, while the page's timers fire."""
        end = time.monotonic() + seconds
        due: dict[str, float] = {}
        while (now := time.monotonic()) < end:
            due = {fragment: due.get(fragment, now + interval_s) for fragment, interval_s in self.timers.items()}
            await asyncio.sleep(max(0.0, min(end, *due.values(), end) - now))
            for fragment in [f for f, at in due.items() if at <= time.monotonic()]:
                due.pop(fragment)
                if fragment in self.timers:
                    await self._run(tab, fragment=fragment)
                    self.ticks += 1

    async def _run(
        self, tab: Any, first: bool = False, page: str = "", change: tuple[str, float] | None = None, fragment: str = ""
    ) -> None:
        message = BackMsg()
        state = message.rerun_script
        if change:
            path, value = change
            self.states[path] = (self.widgets[path][0], value)
            self.query[path] = f"{value:g}"
        if page:
            self.page = self.pages.get(page, self.page)
            self.widgets.clear()
        for path, (identity, value) in self.states.items():
            whole = self.widgets.get(path, (identity, False))[1]
            one = state.widget_states.widgets.add(id=identity)
            if whole:
                one.int_value = int(value)
            else:
                one.double_value = float(value)
        state.query_string = urllib.parse.urlencode(self.query)
        state.page_script_hash = self.page
        if fragment:
            state.fragment_id, state.is_auto_rerun = fragment, True
        else:
            self.timers.clear()
        began = time.monotonic()
        await tab.send(message.SerializeToString())
        seen = await self._until_finished(tab, bool(fragment))
        if not fragment:
            self.runs += 1
            self.named += self.number in seen
            if not first:
                self.took_s.append(time.monotonic() - began)
            wrong = {n for n in seen if n != self.number}
            if wrong:
                self.errors.append(f"cross-talk: session {sorted(wrong)} on the page of {self.number}")

    async def _until_finished(self, tab: Any, fragment: bool) -> set[int]:
        """Read the page until the script ends; the fleet sizes it speaks of."""
        seen: set[int] = set()
        timers: dict[str, float] = {}
        while True:
            data = await asyncio.wait_for(tab.recv(), LONGEST_S)
            message = ForwardMsg()
            message.ParseFromString(data)
            kind = message.WhichOneof("type")
            if kind == "delta":
                self._element(message.delta, seen)
            elif kind == "navigation":
                self.pages = {p.url_pathname or "plan": p.page_script_hash for p in message.navigation.app_pages}
            elif kind == "page_info_changed":
                self.query = dict(urllib.parse.parse_qsl(message.page_info_changed.query_string))
            elif kind == "new_session":
                timers = {}
            elif kind == "auto_rerun":
                timers[message.auto_rerun.fragment_id] = message.auto_rerun.interval
            elif kind == "stop_auto_rerun":
                for fragment_id in message.stop_auto_rerun.fragment_ids:
                    timers.pop(fragment_id, None)
                    self.timers.pop(fragment_id, None)
            elif kind == "session_event" and message.session_event.WhichOneof("type") == "script_compilation_exception":
                self.errors.append("the script does not compile")
            elif kind == "script_finished":
                status = ForwardMsg.ScriptFinishedStatus.Name(message.script_finished)
                self.timers = timers if status == "FINISHED_SUCCESSFULLY" else self.timers | timers
                if status == "FINISHED_EARLY_FOR_RERUN":
                    continue
                if fragment != (status == "FINISHED_FRAGMENT_RUN_SUCCESSFULLY"):
                    if fragment and status == "FINISHED_SUCCESSFULLY":
                        self.full_plans += 1  # the timer found the full plan, and had the whole page drawn again
                        return seen
                    continue
                return seen

    def _element(self, delta: Any, seen: set[int]) -> None:
        if delta.WhichOneof("type") != "new_element":
            return
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.errors.append(f"{element.exception.type}: {element.exception.message[:150]}")
        elif kind == "number_input":
            path = element.number_input.id.rpartition("-")[2]
            self.widgets[path] = (element.number_input.id, element.number_input.data_type == 0)
        elif kind in ("heading", "markdown"):
            body = (element.heading.body if kind == "heading" else element.markdown.body).replace("\\", "")
            seen.update(int(n) for n in TITLE.findall(body))


def rss_mb(pid: int) -> float:
    """Resident memory of the server, MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_s(pid: int) -> float:
    """Processor time the server has used, s; its workers' is not in it."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def load(address: str, pid: int | None, sessions: int, seconds: float, think_s: tuple[float, float], seed: int) -> dict[str, Any]:
    """Run that many sessions for that long; what was seen."""
    until = time.monotonic() + seconds
    tabs = [Session(address, i + 1, seed + i) for i in range(sessions)]
    memory: list[float] = []

    async def watch() -> None:
        while pid and time.monotonic() < until:
            memory.append(rss_mb(pid))
            await asyncio.sleep(max(0.5, seconds / 60))

    used_s = cpu_s(pid) if pid else 0.0
    ramp_s = min(seconds / 4, sessions * 0.3)
    await asyncio.gather(watch(), *(tab.live(until, think_s, ramp_s * i / sessions) for i, tab in enumerate(tabs)))
    took = sorted(s for tab in tabs for s in tab.took_s)
    return {
        "sessions": sessions,
        "seconds": seconds,
        "answers": len(took),
        "pages_that_showed_their_own_name": sum(tab.named for tab in tabs),
        "full_plans": sum(tab.full_plans for tab in tabs),
        "timer_runs": sum(tab.ticks for tab in tabs),
        "server_cpu_s_per_answer": round((cpu_s(pid) - used_s) / len(took), 3) if pid and took else None,
        "median_s": round(statistics.median(took), 3) if took else None,
        "p95_s": round(took[int(0.95 * (len(took) - 1))], 3) if took else None,
        "slowest_s": round(took[-1], 3) if took else None,
        "silent_sessions": sum(not tab.took_s for tab in tabs),
        "errors": [error for tab in tabs for error in tab.errors],
        "memory_mb_at_each_tenth": [round(memory[(len(memory) - 1) * tenth // 10]) for tenth in range(11)] if memory else None,
    }


def start() -> tuple[subprocess.Popen[bytes], str]:
    """The app on a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        f"--server.port={port}",
        "--server.headless=true",
        "--server.fileWatcherType=none",
    ]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).read()
            return process, address
        except OSError:
            time.sleep(0.2)
    process.terminate()
    raise SystemExit("the server did not start")


def main() -> int:
    """Start the server, measure one user, then many; print both as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sessions", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--alone-seconds", type=float, default=30, help="length of the run with one user")
    arguments.add_argument("--think", type=float, nargs=2, default=(2.0, 8.0), metavar=("LEAST", "MOST"), help="pause between changes, s")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    process, address = start()
    try:
        think = (given.think[0], given.think[1])
        alone = asyncio.run(load(address, process.pid, 1, given.alone_seconds, think, given.seed + 10_000))
        many = asyncio.run(load(address, process.pid, given.sessions, given.seconds, think, given.seed))
        alive = process.poll() is None
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            many["errors"].append("the server did not end within 20 s of being asked to")
    ratio = round(many["median_s"] / alone["median_s"], 2) if many["median_s"] and alone["median_s"] else None
    print(json.dumps({"alone": alone, "together": many, "median_times_one_user": ratio, "server_alive": alive}, indent=1))
    return 0 if alive and not many["errors"] and not alone["errors"] and not many["silent_sessions"] else 1


if __name__ == "__main__":
    sys.exit(main())
