"""Monitored training sessions for the event loop.

You own the ``while`` loop; a monitored session does the rest around each awaited step: initialise or
restore, hooks, checkpoints, summaries, recovery, an orderly stop.
"""

# The house, from the ground up. Imports go down only; tests/test_layers.py holds this.
#
#   L0  errors, clock, snapshot, files      the error tree; time; a consistent state; blocking calls
#   L1  graph       the embedded engine: a numpy dataflow graph and its raw session
#       checkpoint  names -> arrays on disk; knows nothing of graphs
#       summary     event files that TensorBoard reads; its ops sit on graph
#   L2  runtime     hooks' contract, coordinator, scaffold, session creators, MonitoredSession
#   L3  hooks       the standard hooks
#       programs    other engines behind the session protocol
#   L4  training    MonitoredTrainingSession: scaffold + creator + default hooks
#   L5  testing     the public test bench
