"""What is added to Streamlit's own answers: a start script and a stylesheet in the head of every page."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, Response

STATIC = Path(__file__).parent / "static"
FILES = ("planner.js", "planner.css")
HEAD = b'<script src="./planner.js"></script><link rel="stylesheet" href="./planner.css"></head>'
"""Files, not inline text: a Content-Security-Policy of 'self' lets them through."""


async def extras(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Middleware: serve `FILES` beside the pages, and name them in each page."""
    name = request.url.path.rpartition("/")[2]
    if name in FILES:
        return FileResponse(STATIC / name, headers={"Cache-Control": "no-cache"})
    if "text/html" not in request.headers.get("accept", ""):
        return await answer(request)
    asked = MutableHeaders(scope=request.scope)
    for header in ("accept-encoding", "if-none-match", "if-modified-since"):
        del asked[header]  # the page as it is: neither packed nor "as you had it"
    response = await answer(request)
    if not response.headers.get("content-type", "").startswith("text/html") or not hasattr(response, "body_iterator"):
        return response
    page = b"".join([part async for part in response.body_iterator])
    kept = {key: value for key, value in response.headers.items() if key not in ("content-length", "etag", "last-modified")}
    return Response(page.replace(b"</head>", HEAD, 1), response.status_code, kept)
