"""Unit constants. Decimal (GB) and binary (GiB) sizes are never mixed; code is SI with the unit in every name."""

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB = 2**10, 2**20, 2**30
MTOK = 10**6
US, MS = 1e-6, 1e-3
MULTIPLY_ADD_FLOPS = 2
"""Operations of one multiply-add, as datasheets count their peaks."""
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
HOURS_PER_MONTH = 730
HOURS_PER_WEEK = 168
GBIT_BYTES = GB / 8


def milliseconds(seconds: float) -> str:
    """Milliseconds as messages write them: three digits, and no fraction from 100 on."""
    ms = seconds / MS
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def gibibytes(size: float) -> str:
    """Memory of a GPU as every message, page and document writes it: GiB, the unit of engine logs, to three digits or to 0.01."""
    gib = size / GIB
    return f"{gib:,.{2 if abs(gib) < 9.995 else 1 if abs(gib) < 99.95 else 0}f} GiB"
