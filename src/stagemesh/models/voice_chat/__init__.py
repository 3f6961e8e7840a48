"""The three-stage speech pipeline: a language model thinks, a talker voices, a vocoder renders."""
