"""One replica of several ranks: rank 0 tells the others what its engine is asked.

What belongs here runs in the processes of a replica. Whoever starts and ends these is elsewhere.
"""
