"""Qwen3-TTS: a talker that writes codec frames, and the codec decoder as a stage or inside it."""
