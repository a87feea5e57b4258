"""Refits the kernel constants: `python -m planner.fit DIR [--out FILE] [--only gemm,moe]`."""

import argparse
import json
from pathlib import Path

from planner.fit import FITS, fit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m planner.fit", description=__doc__)
    parser.add_argument("directory", help="aiconfigurator's systems/data, or a folder of kernel CSV tables")
    parser.add_argument("--out", type=Path, help="constants file to update; default prints the rows")
    parser.add_argument("--only", default="", help=f"comma-separated kernels among {', '.join(FITS)}")
    args = parser.parse_args()
    rows = fit(args.directory, tuple(filter(None, args.only.split(","))))
    if args.out is None:
        print(render({"kernels": rows}))
        return
    document = json.loads(args.out.read_text()) if args.out.exists() else {"kernels": {}}
    document["kernels"] |= rows
    args.out.write_text(render(document))
    print({kernel: len(found) for kernel, found in rows.items()})


def render(document: dict) -> str:
    """JSON with one row a line, so that a changed constant is a one-line diff."""
    head = {k: v for k, v in document.items() if k != "kernels"}
    lines = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}," for k, v in head.items()]
    lines.append(' "kernels": {')
    tables = list(document["kernels"].items())
    for i, (kernel, rows) in enumerate(tables):
        body = ",\n".join("   " + json.dumps(row) for row in rows)
        lines.append(f'  "{kernel}": [\n{body}\n  ]' + ("," if i + 1 < len(tables) else ""))
    return "{\n" + "\n".join(lines) + "\n }\n}\n"


if __name__ == "__main__":
    main()
