"""Past one process: sessions that another process runs.

A target names where a session is run. One service does what sessions ask for, whatever carries the
messages::

    Session("grpc://host:port")  ->  RemoteBackend  ->  channel  ->  SessionService  ->  a session there
"""

from asyncmon.distributed import targets as targets
