"""What bounds the influence of one row, and the grid its result is rounded to."""

from tailguard.truncation.grid import Grid
from tailguard.truncation.rules import CoordinateClip, L2Clip, Smoothed, Truncation
from tailguard.truncation.smoothing import psi, psi_bound

__all__ = ["CoordinateClip", "Grid", "L2Clip", "Smoothed", "Truncation", "psi", "psi_bound"]
