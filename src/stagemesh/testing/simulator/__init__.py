"""The deterministic simulator: the machines of `stagemesh.runtime.core` under a virtual clock.

One seed is one history: a pipeline, requests, users, and what goes wrong. After every event the
rules of the runtime are checked against an account that the simulator keeps itself. A seed that
breaks a rule says so and can be run again:

    python -m stagemesh.testing.simulator 4711            # print the history
    python -m stagemesh.testing.simulator --count 100000  # run seeds 0 to 99999
    python -m stagemesh.testing.simulator --count 100000 --processes 2
"""
