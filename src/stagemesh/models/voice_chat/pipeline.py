"""Topology of the speech pipeline: thinker -> talker -> code2wav."""
