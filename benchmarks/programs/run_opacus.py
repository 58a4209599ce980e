"""DP-SGD of a linear model by Opacus, in its own environment; `benchmarks/peers.py` starts it.

Arguments: a file with ``X0, y0, X1, y1, ...``, a file for the answers, and a request in JSON. The rows come with
columns standardised and targets centred and scaled; an answer is the coefficients, the constant last, and the seconds.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import cache

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class Rows(Dataset):
    """Rows that are fetched a batch at a time: one by one, as a list of tuples, takes several times as long."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor) -> None:
        self.X, self.y = X, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.X[k], self.y[k]

    def __getitems__(self, chosen: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if not chosen:
            return []
        index = torch.from_numpy(np.fromiter(chosen, np.int64, len(chosen)))
        return [(self.X[index], self.y[index])]


def whole(batch: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch[0]


@cache
def multiplier(epsilon: float, delta: float, rate: float, epochs: int) -> float:
    return float(
        get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=rate, epochs=epochs, accountant="prv"
        )
    )


def fit(X: np.ndarray, y: np.ndarray, request: dict, setting: list[float], seed: int) -> np.ndarray:
    """Train; return the mean of the second half of the iterates."""
    clip, rate, epochs, step = setting
    torch.manual_seed(seed)
    model = nn.Linear(X.shape[1], 1, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    rows = Rows(torch.as_tensor(X), torch.as_tensor(y)[:, None])
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=step),
        data_loader=DataLoader(rows, batch_size=round(rate * len(y)), collate_fn=whole),
        noise_multiplier=multiplier(request["epsilon"], request["delta"], rate, int(epochs)),
        max_grad_norm=clip * (X.shape[1] + 1) ** 0.5,
    )
    linear = request["task"] == "linear"
    loss = nn.BCEWithLogitsLoss() if not linear else lambda z, t: 0.5 * torch.mean((z - t) ** 2)
    path = []
    for _ in range(int(epochs)):
        for rows_now, target in loader:
            optimizer.zero_grad()
            loss(model(rows_now), target).backward()
            optimizer.step()
            path.append(torch.cat([p.detach().ravel() for p in model.parameters()]))
    return torch.stack(path[len(path) // 2 :]).mean(0).numpy()


def main() -> None:
    data, request = np.load(sys.argv[1]), json.loads(sys.argv[3])
    torch.set_num_threads(request["threads"])
    answers: dict[str, np.ndarray] = {}
    for k, seed in enumerate(request["seeds"]):
        for s, setting in enumerate(request["settings"]):
            if request["cold"]:
                multiplier.cache_clear()
            start = time.perf_counter()
            answers[f"theta{k}_{s}"] = fit(data[f"X{k}"], data[f"y{k}"], request, setting, seed)
            answers[f"seconds{k}_{s}"] = np.array(time.perf_counter() - start)
    np.savez(sys.argv[2], **answers)


if __name__ == "__main__":
    main()
