"""Send the digits to the service, to be predicted and to be learned. Prints what came back."""

import argparse
import asyncio
import gc
import json
import statistics
from pathlib import Path

import numpy as np
from http_client import Client


def digits(features: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return what to ask, what to teach, and the labels. More features than 64 are zeros."""
    with np.load(Path(__file__).parents[1] / "data" / "digits.npz") as data:
        images = np.zeros((len(data["labels"]), features))
        images[:, :64] = data["images"].reshape(-1, 64) / 16
        labels = data["labels"].tolist()
    asked = [json.dumps({"row": row}).encode() for row in images.tolist()]
    taught = [b'%b, "label": %d}' % (row[:-1], label) for row, label in zip(asked, labels, strict=True)]
    return asked, taught, labels


async def main(options: argparse.Namespace) -> None:
    asked, taught, labels = digits(options.features)
    gc.freeze()
    client, teacher = Client(options.port), Client(options.port)
    answers, _ = await asyncio.gather(
        client.load("/predict", asked, options.rate, options.secs),
        teacher.load("/learn", taught, options.teach, options.secs),
    )
    right = [
        json.loads(answer).get("label") == labels[i % len(labels)]
        for i, answer in enumerate(answers)
        if answer is not None
    ]
    if len(client.latencies) < 2:
        raise SystemExit(f"The service on port {options.port} does not answer: {dict(client.counts)}")
    cuts = statistics.quantiles(client.latencies, n=100)
    quarter = max(len(right) // 4, 1)
    found = {
        "p50_ms": round(cuts[49] * 1000, 1),
        "p99_ms": round(cuts[98] * 1000, 1),
        "right_at_first": round(sum(right[:quarter]) / quarter, 2),
        "right_at_last": round(sum(right[-quarter:]) / quarter, 2),
        "predict": client.counts,
        "learn": teacher.counts,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rate", type=float, default=500, help="of predictions, a second")
    parser.add_argument("--teach", type=float, default=100, help="rows with labels, a second")
    parser.add_argument("--secs", type=float, default=10)
    parser.add_argument("--features", type=int, default=64)
    asyncio.run(main(parser.parse_args()))
