"""What a benchmark ran on, in a line that says nothing about whose machine it is."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def description(*packages: str) -> str:
    """Cores, kind of processor, memory, what else they were doing, Python and the versions of packages."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    busy = "otherwise idle" if load < 0.5 else f"busy with other work (load {load:.1f})"
    parts = [f"{cores()} cores ({processor()}), {busy}", f"{gib:.0f} GiB", f"Python {platform.python_version()}"]
    return ", ".join([*parts, *(f"{name} {version(name)}" for name in packages)])


def cores() -> int:
    """Cores that a process may use."""
    return os.cpu_count() or 1


def processor() -> str:
    """The processor's own name for itself, where there is one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    wide = ", AVX-512" if any("avx512f" in line for line in lines if line.startswith("flags")) else ""
    return (names[0] if names else platform.machine()) + wide
