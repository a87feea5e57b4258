"""Vega-Lite specification → SVG text that can stand in the same page as others, the same bytes every time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

VEGA_LITE_VERSION = "6.1"
IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)([A-Za-z_][\w-]*)')


def svg(spec: Mapping[str, Any], name: str) -> str:
    """The chart as SVG; identifiers carry `name`, since two charts of one page must not share them.

    Raises InputError when the renderer is not installed.
    """
    drawn = _drawn(json.dumps(spec, sort_keys=True))
    return IDENTIFIER.sub(lambda found: f"{found[1]}{name}-{found[2]}", drawn)


@lru_cache(maxsize=64)
def _drawn(spec_text: str) -> str:
    try:
        import vl_convert
    except ImportError as error:
        from planner.problems import InputError

        raise InputError("charts need the package vl-convert-python; install requirements.txt, or export Markdown, CSV or XLSX") from error
    return vl_convert.vegalite_to_svg(spec_text, vl_version=VEGA_LITE_VERSION)
