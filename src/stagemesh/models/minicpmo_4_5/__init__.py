"""MiniCPM-o 4.5: sees, hears and speaks, by turns or in full duplex."""
