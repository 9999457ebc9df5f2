"""Measure how well a model calls tools: `runner` grades its answers, `probe` tries capabilities."""
