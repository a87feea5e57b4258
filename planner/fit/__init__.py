"""Kernel constants from public kernel benchmarks. A tool of the project: no plan imports it.

`python -m planner.fit DIR [--out FILE] [--only gemm,moe]` reads either the database of ai-dynamo/aiconfigurator
(`…/systems/data`, Apache-2.0; needs pandas and pyarrow) or a folder of small CSV tables drawn from it, and writes the
rows of `planner/catalog/kernels.json`. Nothing here sees a serving result.
"""

from planner.fit.forms import FITS
from planner.fit.tables import read

__all__ = ["FITS", "fit", "read"]


def fit(directory: str, only: tuple[str, ...] = ()) -> dict[str, list[dict]]:
    """Rows of constants by kernel, each with its key, the number of kernels seen and the median error left over."""
    found = {}
    for kernel, form in FITS.items():
        if only and kernel not in only:
            continue
        rows: list[dict] = []
        for key, columns in read(directory, kernel):
            row = form(key, columns)
            rows += [] if row is None else row if isinstance(row, list) else [row]
        found[kernel] = sorted(rows, key=lambda r: [str(r.get(k)) for k in ("gpu", "engine", "dtype", "model", "head_dim", "ranks")])
    return found
