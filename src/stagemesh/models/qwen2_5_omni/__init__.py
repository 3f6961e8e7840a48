"""Qwen2.5-Omni: text, image, audio and video in, text and speech out."""
