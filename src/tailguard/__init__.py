"""Differentially private learning on data with heavy tails."""
