#!/usr/bin/env python3
"""Write src/codec/codebook_tables.h: the scalar codebooks that decide codes and decoded values.

Usage: tools/generate_codebooks.py           write the file
       tools/generate_codebooks.py --check   fail where a committed number is off by more than 2e-12

A Lloyd-Max codebook of a density f has thresholds midway between its centroids, and each centroid
is the mean of f over its cell. Both densities here are symmetric, so only the half line is solved:
find c_0 < c_1 < ... with, for each cell [t_i, t_(i+1)], the integral of (x - c_i) f(x) equal to 0.
Newton's method on these equations (their Jacobian is tridiagonal) reaches rounding error; plain
Lloyd iteration needs tens of thousands of steps at 8 bits, and stops short of it. The integrals are
Gauss-Legendre sums of (x - c_i) f(x) itself: differences of the normal distribution function would
lose the digits that matter in narrow cells.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

OUTPUT = Path(__file__).parents[1] / "src" / "codec" / "codebook_tables.h"
TOLERANCE = 2e-12
N_NODES = 24
N_LLOYD_STEPS = 200
NUMBER = re.compile(r"-?\d+\.\d+")

Density = Callable[[float], float]


def legendre_nodes(n: int) -> list[tuple[float, float]]:
    """Return the nodes and weights of Gauss-Legendre quadrature over [-1, 1]."""
    result = []
    for i in range(n):
        x = math.cos(math.pi * (i + 0.75) / (n + 0.5))
        slope = 1.0
        for _ in range(100):
            previous, value = 1.0, x
            for k in range(2, n + 1):
                previous, value = value, ((2 * k - 1) * x * value - (k - 1) * previous) / k
            slope = n * (x * value - previous) / (x * x - 1)
            step = value / slope
            x -= step
            if abs(step) < 1e-16:
                break
        result.append((x, 2 / ((1 - x * x) * slope * slope)))
    return result


NODES = legendre_nodes(N_NODES)


def integral(function: Density, low: float, high: float) -> float:
    """Return the integral of a smooth function over one cell."""
    middle, half = (low + high) / 2, (high - low) / 2
    return half * math.fsum(weight * function(middle + half * x) for x, weight in NODES)


def normal(x: float) -> float:
    """Return the density of N(0, 1)."""
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def normal_tail(x: float) -> float:
    """Return the probability of N(0, 1) above x."""
    return math.erfc(x / math.sqrt(2)) / 2


def angle_density(level: int) -> Density:
    """Return the density, up to a factor, of a polar angle's distance from pi/4 at a level >= 2."""
    power = 2 ** (level - 1) - 1
    return lambda x: math.cos(2 * x) ** power


def thresholds_of(centroids: list[float], upper: float) -> list[float]:
    """Return the cells' borders on the half line: 0, the midpoints, the density's end."""
    middles = [(a + b) / 2 for a, b in pairwise(centroids)]
    return [0.0, *middles, upper]


def cell_moments(f: Density, c: float, low: float, high: float) -> tuple[float, float]:
    """Return the mass of a cell and the integral of (x - c) f(x) over it."""
    if math.isinf(high):  # only N(0, 1) has an unbounded cell
        mass = normal_tail(low)
        return mass, f(low) - c * mass
    return integral(f, low, high), integral(lambda x: (x - c) * f(x), low, high)


def newton_step(f: Density, centroids: list[float], upper: float) -> list[float]:
    """Return by how much to move each centroid."""
    n = len(centroids)
    t = thresholds_of(centroids, upper)
    below, diagonal, above, right = [0.0] * n, [0.0] * n, [0.0] * n, [0.0] * n
    for i, c in enumerate(centroids):
        mass, moment = cell_moments(f, c, t[i], t[i + 1])
        left_slope = -(t[i] - c) * f(t[i]) / 2 if i > 0 else 0.0
        right_slope = (t[i + 1] - c) * f(t[i + 1]) / 2 if i + 1 < n else 0.0
        below[i], above[i] = left_slope, right_slope
        diagonal[i] = left_slope + right_slope - mass
        right[i] = -moment
    for i in range(1, n):
        factor = below[i] / diagonal[i - 1]
        diagonal[i] -= factor * above[i - 1]
        right[i] -= factor * right[i - 1]
    step = [0.0] * n
    for i in reversed(range(n)):
        following = above[i] * step[i + 1] if i + 1 < n else 0.0
        step[i] = (right[i] - following) / diagonal[i]
    return step


def lloyd_max(f: Density, start: list[float], upper: float) -> list[float]:
    """Return the positive centroids, from a start that is roughly right."""
    centroids = start
    for _ in range(N_LLOYD_STEPS):  # into the region where Newton's method converges
        t = thresholds_of(centroids, upper)
        moments = [cell_moments(f, c, t[i], t[i + 1]) for i, c in enumerate(centroids)]
        shifts = [moment / mass for mass, moment in moments]
        centroids = [c + shift for c, shift in zip(centroids, shifts, strict=True)]
    for _ in range(100):
        step = newton_step(f, centroids, upper)
        factor = 1.0
        while True:  # keep the order: a full step may overshoot far from the solution
            moved = [c + factor * s for c, s in zip(centroids, step, strict=True)]
            ordered = all(a < b for a, b in zip([0.0, *moved], [*moved, upper], strict=True))
            if ordered:
                break
            factor /= 2
        centroids = moved
        if max(abs(s) for s in step) < 1e-15:
            break
    return centroids


def normal_codebook(bits: int) -> list[float]:
    """Return the positive centroids of N(0, 1)."""
    n = 2 ** (bits - 1)
    # The best companding of a density f spreads centroids as f^(1/3) does: N(0, 3) here.
    wide = NormalDist(0.0, math.sqrt(3))
    return lloyd_max(normal, [wide.inv_cdf(0.5 + (i + 0.5) / (2 * n)) for i in range(n)], math.inf)


def normal_distortion(centroids: list[float]) -> float:
    """Return the mean squared error of the codebook on N(0, 1)."""
    t = thresholds_of(centroids, math.inf)
    total = 0.0
    for c, (low, high) in zip(centroids, pairwise(t), strict=True):
        if math.isinf(high):
            mass = normal_tail(low)
            total += low * normal(low) + mass - 2 * c * normal(low) + c * c * mass
        else:
            total += integral(lambda x, c=c: (x - c) ** 2 * normal(x), low, high)  # type: ignore[misc]
    return 2 * total


def angle_codebook(level: int, bits: int) -> list[float]:
    """Return all centroids of a polar angle in [0, pi/2] at a level >= 2."""
    n = 2 ** (bits - 1)
    upper = math.pi / 4
    start = [upper * 0.8 * (i + 0.5) / n for i in range(n)]
    half = lloyd_max(angle_density(level), start, upper)
    return [upper - c for c in reversed(half)] + [upper + c for c in half]


def array(name: str, values: list[float]) -> str:
    """Return one C++ array of doubles, six a line."""
    digits = [f"{value:.15f}" for value in values]
    lines = [", ".join(digits[i : i + 5]) for i in range(0, len(digits), 5)]
    body = ",\n    ".join(lines)
    return f"inline constexpr double {name}[] = {{\n    {body}}};\n"


def generate() -> str:
    """Return the text of the header."""
    parts = [
        "// Generated by tools/generate_codebooks.py, which says how; do not edit.\n"
        "//\n"
        "// kNormalN: the positive centroids of the N-bit Lloyd-Max codebook of N(0, 1).\n"
        "// kNormalDistortion: its mean squared error by bits; without a bit it is the variance.\n"
        "// kAngleLBTangents, -Cosines, -Sines: of the B-bit codebook of polar angles at level L,\n"
        "// the tangents of its thresholds, the cosines and sines of its centroids.\n"
        "// clang-format off\n"
        "#pragma once\n\n"
        "namespace kvpool::internal {\n"
    ]
    distortions = [1.0]
    for bits in range(1, 9):
        centroids = normal_codebook(bits)
        distortions.append(normal_distortion(centroids))
        parts.append(array(f"kNormal{bits}", centroids))
    parts.append(array("kNormalDistortion", distortions))
    for bits in range(1, 5):
        n = 2**bits
        angles = [(code + 0.5) * 2 * math.pi / n for code in range(n)]
        # Within the first quadrant: the others are turned into it.
        borders = [k * 2 * math.pi / n for k in range(1, max(1, n // 4))]
        if borders:
            parts.append(array(f"kAngle1{bits}Tangents", [math.tan(b) for b in borders]))
        parts.append(array(f"kAngle1{bits}Cosines", [math.cos(a) for a in angles]))
        parts.append(array(f"kAngle1{bits}Sines", [math.sin(a) for a in angles]))
    for level in (2, 3, 4):
        for bits in range(1, 5):
            angles = angle_codebook(level, bits)
            middles = [(a + b) / 2 for a, b in pairwise(angles)]
            name = f"kAngle{level}{bits}"
            parts.append(array(f"{name}Tangents", [math.tan(m) for m in middles]))
            parts.append(array(f"{name}Cosines", [math.cos(a) for a in angles]))
            parts.append(array(f"{name}Sines", [math.sin(a) for a in angles]))
    parts.append("}  // namespace kvpool::internal\n")
    return "\n".join(parts)


def difference(committed: str, generated: str) -> str | None:
    """Return what differs between two texts, numbers compared as numbers; None for nothing."""
    if NUMBER.sub("#", committed) != NUMBER.sub("#", generated):
        return "the text around the numbers differs"
    pairs = zip(NUMBER.findall(committed), NUMBER.findall(generated), strict=True)
    for old, new in pairs:
        if abs(float(old) - float(new)) > TOLERANCE:
            return f"{old} is committed, {new} is computed"
    return None


def main(argv: list[str]) -> int:
    """Write the header, or check it."""
    text = generate()
    if argv[1:] == ["--check"]:
        found = difference(OUTPUT.read_text("utf-8"), text)
        if found is not None:
            print(f"{OUTPUT.name}: {found}")
        return 0 if found is None else 1
    OUTPUT.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
