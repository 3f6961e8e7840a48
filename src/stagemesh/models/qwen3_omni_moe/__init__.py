"""Qwen3-Omni: a mixture of experts that thinks, one that talks, and a vocoder."""
