"""Linear and logistic regression of diffprivlib, in its own environment; `benchmarks/peers.py` starts it.

Arguments: a file with ``X0, y0, fresh0, X1, ...``, a file for the answers, and a request in JSON. Bounds are at 1 and
99 % of the data, which nobody may know; an answer is the predictions for the fresh rows, and the seconds.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression

warnings.filterwarnings("ignore")


def fitted(
    X: np.ndarray, y: np.ndarray, fresh: np.ndarray, task: str, epsilon: float, seed: int
) -> tuple[np.ndarray, float]:
    """Predictions, and the seconds of the fit without finding its bounds."""
    mean, sd = X.mean(0), X.std(0) + 1e-12
    Z, F = (X - mean) / sd, (fresh - mean) / sd
    if task == "logistic":
        norm = float(np.quantile(np.linalg.norm(Z, axis=1), 0.99))
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=1e3, max_iter=300, random_state=seed)
    else:
        low, high = np.quantile(Z, 0.01, axis=0), np.quantile(Z, 0.99, axis=0)
        flat = high <= low
        low[flat], high[flat] = Z.min(0)[flat] - 1e-9, Z.max(0)[flat] + 1e-9
        bounds = float(np.quantile(y, 0.01)), float(np.quantile(y, 0.99))
        model = LinearRegression(epsilon=epsilon, bounds_X=(low, high), bounds_y=bounds, random_state=seed)
    start = time.perf_counter()
    model.fit(Z, y)
    seconds = time.perf_counter() - start
    return model.predict_proba(F)[:, 1] if task == "logistic" else model.predict(F), seconds


def main() -> None:
    data, request, answers = np.load(sys.argv[1]), json.loads(sys.argv[3]), {}
    for k in range(request["count"]):
        rows = data[f"X{k}"], data[f"y{k}"], data[f"fresh{k}"]
        answers[f"p{k}"], answers[f"seconds{k}"] = fitted(*rows, request["task"], request["epsilon"], k)
    np.savez(sys.argv[2], **answers)


if __name__ == "__main__":
    main()
