"""Measure how well a model calls tools: `eval` grades answers, `probe` tries capabilities."""
