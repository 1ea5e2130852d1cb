"""TensorFlow's gRPC session as the peer of distributed.py: it answers lines of JSON with seconds.

With the argument ``serve PORT`` it is the server instead.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf  # type: ignore[import-not-found]


def serve(port: str) -> None:
    """Run a server until the standard input is closed, as by the end of the other process."""
    server = tf.train.Server({"ps": [f"localhost:{port}"]}, "ps", 0)
    threading.Thread(target=server.join, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def works(sess: Any) -> dict[str, Any]:
    """Return what is measured, by name."""
    v = tf.get_variable("v", initializer=0.0)
    add = v.assign_add(1.0).op
    found = {"scalar": lambda: sess.run(add)}
    for mb in (10, 100):
        x = tf.placeholder(tf.float32, [mb * 250_000])
        total, held = x[-1], tf.get_variable(f"held{mb}", initializer=tf.zeros([mb * 250_000]))
        value = np.ones(mb * 250_000, np.float32)
        found[f"pull {mb}"] = lambda held=held: sess.run(held)
        found[f"push {mb}"] = lambda total=total, x=x, value=value: sess.run(total, {x: value})
    return found


def main() -> None:
    """Answer requests."""
    tf.disable_eager_execution()
    port = free_port()
    subprocess.Popen(
        [sys.executable, __file__, "serve", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    sess = tf.Session(f"grpc://localhost:{port}")
    known = works(sess)
    sess.run(tf.global_variables_initializer())
    for line in sys.stdin:
        request = json.loads(line)
        work, count = known[request["work"]], request["count"]
        start = time.perf_counter()
        for _ in range(count):
            work()
        print(json.dumps({"secs": (time.perf_counter() - start) / count}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:] else main()
