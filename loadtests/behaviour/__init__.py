"""The preserved-behaviour suite (design §7): does a candidate still answer as its baseline does?

``collect`` asks one server everything and keeps its answers; ``judge`` compares what two servers (and the baseline a
second time, as the control) said, and is pure. The servers need not run at the same time.
"""
