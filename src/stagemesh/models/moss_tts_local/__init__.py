"""MOSS-TTS Local: a talker with a small decoder for the depth of each frame, and a codec."""
