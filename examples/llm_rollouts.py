"""Train a tiny language model (GRPO) to count on, by texts that an HTTP server writes."""

import argparse
import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from torch import nn

import asyncmon as am
from asyncmon.programs.torch import TorchProgram
from asyncmon.runtime import Policy

TOKENS, LENGTH, CHUNK, GROUP, BATCH = 12, 8, 4, 8, 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(TOKENS, 64, batch_first=True), nn.Linear(64, TOKENS)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(nn.functional.one_hot(texts, TOKENS).float())[0]).log_softmax(-1)


class Server(BaseHTTPRequestHandler):
    """Takes weights; adds a chunk of tokens to a text, each with its log-probability."""

    model, log_message = Model(), staticmethod(lambda *_: None)

    @torch.no_grad()
    def do_POST(self) -> None:
        body, answer = json.loads(self.rfile.read(int(self.headers["content-length"]))), []
        if self.path == "/weights":
            self.model.load_state_dict({name: torch.tensor(entry) for name, entry in body.items()})
        for _ in range(CHUNK if self.path == "/chunk" else 0):
            scores = self.model(torch.tensor([[token for token, _ in [*body, *answer]]]))[0, -1]
            token = scores.exp().multinomial(1).item()
            answer.append((token, scores[token].item()))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


async def train(steps: int, run_dir: str, port: int) -> None:
    model, pushed, pushes = Model(), [None, None], ThreadPoolExecutor(1)
    program = TorchProgram({"model": model, "optimizer": torch.optim.Adam(model.parameters(), 2e-2)})

    @program.training_step
    def update(state: dict, batch: tuple) -> torch.Tensor:
        texts, before, gains = batch
        ratio = (state["model"](texts[:, :-1]).gather(-1, texts[:, 1:, None])[..., 0] - before).exp()
        return -torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()

    def post(path: str, body: object) -> list:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", path, json.dumps(body, default=lambda entry: entry.tolist()))
        return json.loads(connection.getresponse().read())

    async def write(number: int, policy: Policy) -> list[tuple[int, float]]:
        text = [(number % TOKENS, 0.0)]
        while len(text) <= LENGTH:
            if len(text) == 1 or policy.newer:  # a chunk that begins after a step has its weights
                weights = await policy.weights()  # one object for each version, and one push
                if weights is not pushed[0]:
                    pushed[:] = weights, pushes.submit(post, "/weights", weights)
                await asyncio.wrap_future(pushed[1])
            text += await asyncio.to_thread(post, "/chunk", text)
        return text

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=run_dir, save_checkpoint_steps=10,
        hooks=[am.StopAtStepHook(last_step=steps)],
    ) as sess:  # fmt: skip
        print(f"begins at step {sess.global_step}")
        made = sess.produce(range(10**6), write, workers=16, group=GROUP, max_age=2, weights="model")
        async for batch in made.batches(BATCH):
            answers = torch.tensor([answer for item in batch for answer in item.value])
            texts, before = answers[..., 0].long(), answers[:, 1:, 1]
            rewards = (texts[:, 1:] == (texts[:, :-1] + 1) % TOKENS).float().mean(1).view(-1, GROUP)
            gains = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
            versions = {item.element: item.version for item in batch}
            print(f"step {sess.global_step}: reward {rewards.mean():.2f}, {versions=}")
            await sess.run("update", {"batch": (texts, before, gains.view(-1, 1))})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--run-dir", default="runs/llm_rollouts")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(train(**vars(parser.parse_args()), port=server.server_port))
