"""The Dask engine on a cluster of two worker processes: the same bits as in memory, also when a worker is killed."""

from __future__ import annotations

import os
import signal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

import tailguard as tg
from tailguard.engines import RowsStayError, engine_for
from tailguard.engines.dask.tasks import unread
from tailguard.engines.memory import InMemory
from tailguard.losses import Custom
from tailguard.means.queries import Queries
from tailguard.privacy import Account, Budget, noise_source

dask = pytest.importorskip("dask", reason="needs tailguard[dask]")
distributed = pytest.importorskip("distributed", reason="needs tailguard[dask]")
da = pytest.importorskip("dask.array", reason="needs tailguard[dask]")
dd = pytest.importorskip("dask.dataframe", reason="needs tailguard[dask]")

N, D = 3000, 3
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process that is started again when it dies."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "30s", "distributed.admin.log-length": 1000}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(N, D))
    X[rng.random((N, D)) < 0.01] = np.nan
    y = X[:, 0] + rng.standard_t(2.5, N)
    frame = pd.DataFrame(X, columns=NAMES).assign(cost=y, kind=np.where(np.nan_to_num(y) > 1.5, "high", "low"))
    frame["level"] = np.digitize(np.nan_to_num(y), [1.0, 3.0])
    return frame


def in_chunks(table, target, parts=5):
    edges = tuple(len(rows) for rows in np.array_split(np.zeros(len(table)), parts))
    X, y = table[NAMES].to_numpy(), table[target].to_numpy()
    return da.from_array(X, chunks=(edges, D)), da.from_array(y, chunks=(edges,))


def in_frames(table, target, parts=3):
    rows = dd.from_pandas(table, npartitions=parts)
    return rows[NAMES], rows[target]


def by_name(table, target, parts=4):
    return dd.from_pandas(table[[*NAMES, target]], npartitions=parts), target


def parquet(table, target, folder):
    pq.write_table(pa.Table.from_pandas(table[[*NAMES, target]]), folder / "rows.parquet", row_group_size=700)
    return str(folder / "rows.parquet"), target


def assert_same(found, expected):
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)
    assert found.privacy_.events == expected.privacy_.events


ESTIMATORS = {
    "ridge": (tg.PrivateRidge(epsilon=1.0), "cost", in_chunks),
    "Huber": (tg.PrivateHuberRegressor(epsilon=1.0), "cost", by_name),
    "Poisson": (tg.PrivatePoissonRegressor(epsilon=1.0), "level", in_frames),
    "two classes of text": (tg.PrivateLogisticRegression(epsilon=1.0), "kind", by_name),
    "three classes": (tg.PrivateLogisticRegression(epsilon=1.0), "level", in_chunks),
    "clipped, mini-batches": (
        tg.PrivateRidge(epsilon=1.0, method="clipped", clip=1.0, steps=4, batch_size=300),
        "cost",
        in_chunks,
    ),
    "smoothed": (tg.PrivateRidge(epsilon=1.0, method="smoothed", scale=10.0, steps=4), "cost", in_frames),
    "robust": (tg.PrivateHuberRegressor(epsilon=1.0, method="robust", scale=10.0, steps=4), "cost", by_name),
    "with intervals": (tg.PrivateRidge(epsilon=1.0, inference=True), "cost", in_chunks),
    "with hints": (tg.PrivateRidge(epsilon=1.0, hints=tg.Hints(ranges={"x0": (0.0, 9.0)})), "cost", in_frames),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_has_the_same_bits_as_in_memory(name, client, table):
    model, target, build = ESTIMATORS[name]
    model = model.set_params(random_state=7)
    expected = type(model)(**model.get_params()).fit(table[NAMES], table[target])
    assert_same(type(model)(**model.get_params()).fit(*build(table, target)), expected)


@pytest.mark.parametrize("parts", [1, 11])
def test_a_fit_has_the_same_bits_however_the_rows_are_cut(client, table, parts):
    model = tg.PrivateRidge(epsilon=1.0, random_state=11)
    expected = tg.PrivateRidge(epsilon=1.0, random_state=11).fit(table[NAMES].to_numpy(), table["cost"].to_numpy())
    assert_same(model.fit(*in_chunks(table, "cost", parts)), expected)


def test_predictions_stay_on_the_workers_and_take_columns_by_name(client, table):
    rows, target = by_name(table, "cost")
    model = tg.PrivateRidge(epsilon=1.0, method="clipped", clip=1.0, steps=2, random_state=1).fit(rows, target)
    assert model.feature_names_in_.tolist() == NAMES
    predictions = model.predict(rows[["cost", *NAMES[::-1]]])
    assert isinstance(predictions, da.Array)
    assert predictions.chunks == (engine_for(rows, target).lengths,)
    np.testing.assert_allclose(predictions.compute(), model.predict(table[NAMES]), rtol=1e-12)
    with pytest.raises(ValueError, match="X has no column 'x1', 'x2': there is 'cost', 'x0'"):
        model.predict(rows[["cost", "x0"]])
    with pytest.raises(ValueError, match="X has 2 features, but PrivateRidge expects 3"):
        model.predict(in_chunks(table, "cost")[0][:, :2])


def test_several_outputs_for_a_row(client, table):
    X, _ = in_chunks(table, "cost")
    found = engine_for(X, target="none").map_rows(lambda rows: np.nan_to_num(rows[:, :2]))
    assert found.shape == (N, 2)
    np.testing.assert_array_equal(found.compute(), np.nan_to_num(table[NAMES].to_numpy()[:, :2]))


@pytest.mark.parametrize("target", ["cost", "kind"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "streamed by the workers"])
def test_files_are_read_by_the_workers(client, table, target, kept, tmp_path):
    method = tg.PrivateRidge if target == "cost" else tg.PrivateLogisticRegression
    model = method(epsilon=1.0, method="clipped", clip=1.0, steps=3, random_state=3)
    expected = method(**model.get_params()).fit(table[NAMES], table[target])
    with dask.config.set({"tailguard.persist": kept}):
        path, target = parquet(table, target, tmp_path)
        rows = engine_for(tg.Source(path), target, target="label" if target == "kind" else "number")
        assert type(rows).__name__ == "Dask"
        assert len(rows.parts.refs) == 1  # row groups are put together up to some size
        assert_same(model.fit(path, target), expected)
        predictions = model.predict(path)  # of files, an array here
        assert isinstance(predictions, np.ndarray)
        close = np.array_equal if target == "kind" else np.allclose
        assert close(predictions, expected.predict(table[NAMES]))


def test_files_are_cut_between_row_groups(client, table, tmp_path, monkeypatch):
    monkeypatch.setattr("tailguard.engines.dask.files._PART_VALUES", 1000 * (D + 1))
    path, target = parquet(table, "cost", tmp_path)
    rows = engine_for(path, target)
    assert rows.lengths == (700, 700, 700, 900)
    found = rows.integer_sum(lambda X, y: np.array([len(X), np.sum(y > 0)]), (2,))
    np.testing.assert_array_equal(found, [N, np.sum(table.cost > 0)])
    apart = engine_for(tg.Source(path, columns=NAMES), table["cost"].to_numpy())
    np.testing.assert_array_equal(apart.integer_sum(lambda X, y: np.array([np.sum(y > 0)]), (1,)), found[1:])


def test_a_mean_has_the_same_bits_as_in_memory(client, table):
    column = dd.from_pandas(table["cost"], npartitions=3)
    found = tg.private_mean(column, epsilon=1.0, random_state=1)
    assert found.value == tg.private_mean(table["cost"].to_numpy(), epsilon=1.0, random_state=1).value
    assert isinstance(found.value, float)


# A worker dies


def test_a_worker_that_is_killed_in_the_middle_of_a_step_changes_nothing(client, table, tmp_path):
    """The first block of the second step kills its worker; the step is computed again, and is paid for once."""

    def loss(deadly: str) -> Custom:
        def dz(z, y):
            if deadly and z.any() and not os.path.exists(deadly):  # w = 0 in the first step
                with open(deadly, "w"):
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            return np.tanh(z - y)

        return Custom(value=lambda z, y: np.logaddexp(z - y, y - z), dz=dz)

    X, y = table[NAMES].to_numpy(), table["cost"].to_numpy()
    options = {"epsilon": 1.0, "method": "clipped", "clip": 1.0, "steps": 4, "step_size": 0.5, "random_state": 5}
    before = client.run(os.getpid)
    flag = tmp_path / "killed"
    found = tg.minimize(loss(str(flag)), *in_chunks(table, "cost"), **options)
    assert flag.exists()
    assert set(client.run(os.getpid).values()) != set(before.values())
    expected = tg.minimize(loss(""), X, y, **options)
    np.testing.assert_array_equal(found.w, expected.w)
    assert found.privacy.events == expected.privacy.events
    assert found.privacy.epsilon == expected.privacy.epsilon


@pytest.mark.parametrize("kept", [True, False], ids=["rows are held", "rows are computed anew"])
def test_a_worker_that_is_killed_inside_a_query_of_the_default_changes_nothing(client, table, tmp_path, kept):
    """It dies in the middle of its share; a ledger is charged for one fit."""
    flag = tmp_path / "killed"

    def arm(flag: str) -> None:
        from tailguard.engines.memory import InMemory

        original, asked = InMemory.integer_sum, []

        def deadly(self, *arguments):
            asked.append(None)
            if len(asked) == 12 and not os.path.exists(flag):
                with open(flag, "w"):
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, *arguments)

        InMemory.integer_sum = deadly

    expected = tg.PrivateRidge(epsilon=1.0, random_state=2).fit(table[NAMES].to_numpy(), table["cost"].to_numpy())
    client.run(arm, str(flag))
    model = tg.PrivateRidge(epsilon=1.0, random_state=2)
    ledger = tg.Ledger.add_dataset(tmp_path / "budget.db", "costs")  # seeded runs go into accounts without a budget
    with dask.config.set({"tailguard.persist": kept}), ledger:
        assert_same(model.fit(*in_chunks(table, "cost")), expected)
    assert flag.exists()
    assert len(ledger.entries) == 1


def test_a_worker_that_is_killed_between_two_queries_of_the_default_changes_nothing(client, table, monkeypatch):
    """Its partitions are loaded again, elsewhere."""
    from tailguard.engines.dask import Dask

    asked, original = [], Dask.integer_sum

    def killing(self, *arguments):
        asked.append(None)
        if len(asked) == 6:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return original(self, *arguments)

    expected = tg.PrivateRidge(epsilon=1.0, random_state=2).fit(table[NAMES].to_numpy(), table["cost"].to_numpy())
    monkeypatch.setattr(Dask, "integer_sum", killing)
    assert_same(tg.PrivateRidge(epsilon=1.0, random_state=2).fit(*in_chunks(table, "cost")), expected)
    assert len(asked) > 6


# What moves


@pytest.fixture
def arrived(monkeypatch):
    """Bytes that come to this process, where the scheduler runs too, from anywhere."""
    from distributed.comm import tcp

    sizes: list[int] = []
    original = tcp.from_frames

    def counting(frames, *arguments, **options):
        sizes.append(sum(len(memoryview(frame).cast("B")) for frame in frames))
        return original(frames, *arguments, **options)

    monkeypatch.setattr(tcp, "from_frames", counting)
    return sizes


def test_rows_never_come_here(client, arrived):
    X = da.random.default_rng(0).normal(size=(60_000, 10), chunks=(15_000, 10))
    y = X.sum(axis=1)
    tg.PrivateRidge(epsilon=1.0, random_state=1).fit(X, y)
    tg.PrivateLogisticRegression(epsilon=1.0, classes=[False, True], random_state=1).fit(X, y > 0)
    model = tg.PrivateRidge(epsilon=1.0, method="clipped", clip=1.0, steps=3, random_state=1).fit(X, y)
    predictions = model.predict(X)
    moved = sum(arrived)
    assert isinstance(predictions, da.Array)
    assert max(arrived) < 2**16 < 15_000 * 8  # no message has room for a single column of a partition
    assert moved < 0.5 * X.nbytes  # many of Dask's own, with a few integers a query
    predictions.compute()
    assert sum(arrived) - moved >= y.nbytes  # power: what is asked for does come, and is counted


def test_the_dashboard_and_a_progress_bar_show_a_fit(client, table, capsys):
    with distributed.get_task_stream(client) as stream:
        tg.minimize(
            tg.losses.Squared(),
            *in_chunks(table, "cost", parts=20),
            method="clipped",
            epsilon=1.0,
            clip=1.0,
            steps=3,
            progress=True,
        )
    seen = [(distributed.utils.key_split(task["key"]), task["worker"]) for task in stream.data]
    assert "tailguard-load" in dict(seen)
    sums = [worker for name, worker in seen if name == "tailguard-sum"]
    assert len(sums) == 3 * len(set(sums)) > 0  # one for every step and worker that has rows
    assert "private steps" in capsys.readouterr().out


def test_what_needs_the_rows_in_one_place_is_refused(client, table):
    X, y = in_chunks(table, "cost")
    with pytest.raises(RowsStayError, match=r"method='trimmed' needs the rows in one place"):
        tg.PrivateRidge(epsilon=1.0, method="trimmed", bounds=(-1.0, 1.0)).fit(X, y)
    with pytest.raises(RowsStayError, match=r"method='aggregate' needs the rows in one place"):
        tg.PrivateRidge(epsilon=1.0, method="aggregate", constraint=tg.constraints.L2Ball(1.0)).fit(X, y)
    with pytest.raises(RowsStayError, match="groups= is not accepted for rows on a cluster"):
        tg.PrivateRidge(epsilon=1.0).fit(X, y, groups=np.arange(N) // 3)
    with pytest.raises(RowsStayError, match="method='trimmed'"):
        tg.private_mean(y, epsilon=1.0, method="trimmed", bounds=(-1.0, 1.0))


def test_account_noise_and_engine_stay_here(client, table):
    rows = engine_for(*in_chunks(table, "cost"))
    queries = Queries(rows, Account(Budget(mu=1.0)), noise_source(123))

    def harmless(X, y):
        return np.array([len(X) if queries is not None else 0])

    assert rows.integer_sum(harmless, (1,))[0] == N
    for used in ("engine.n", "account.left", "noise.at"):
        owner, name = used.split(".")

        def curious(X, y, owner=owner, name=name):
            return np.array([getattr(getattr(queries, owner), name)])

        with pytest.raises(AttributeError, match=f"{name} is not on the workers"):
            rows.integer_sum(curious, (1,))


# Errors


def test_an_error_while_rows_are_made_says_nothing_of_them(client):
    def secret(block):
        raise ValueError(f"cannot use {block[0, 0]}")

    X = da.full((100, 2), 4711.0, chunks=(50, 2))
    with pytest.raises(RuntimeError, match="could not be computed on the workers") as caught:
        tg.PrivateRidge(epsilon=1.0).fit(X.map_blocks(secret, dtype=float, meta=np.empty((0, 2))), X[:, 0])
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_error_of_a_function_is_that_of_memory_and_leaves_no_rows_in_a_log(client):
    X = da.full((100, 2), 8128.4375, chunks=(50, 2))

    def fails(X, y):
        raise ZeroDivisionError("of the function")

    rows = engine_for(X, X[:, 0])
    with pytest.raises(ZeroDivisionError, match="of the function") as caught:
        rows.integer_sum(fails, (1,))
    assert caught.value.__context__ is None
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert "8128.4375" not in logs

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    def strange(X, y):
        raise Odd(float(X[0, 0]), 2)

    with pytest.raises(RuntimeError, match="raised Odd, which cannot be sent") as caught:
        rows.integer_sum(strange, (1,))
    assert "8128" not in str(caught.value)
    with pytest.raises(RuntimeError, match="Odd"):
        rows.map_rows(lambda X: strange(X, None) if X.any() else X[:, 0]).compute()


def test_arguments_that_do_not_fit_are_named(client, table):
    X, y = in_chunks(table, "cost")
    frame = dd.from_pandas(table, npartitions=2)
    cases = [
        ((X, None), ValueError, "y=None is not accepted"),
        ((X, y[1:]), ValueError, f"y has shape .{N - 1},. but there are {N} rows"),
        ((X, "cost"), ValueError, "y='cost' names a column, and an array has no names"),
        ((X[:, 0], y), ValueError, "X has 1 dimensions"),
        ((X.astype(complex), y), TypeError, "X has dtype complex128"),
        ((frame[NAMES], "coast"), ValueError, "X has no column 'coast'"),
        ((frame, "cost"), TypeError, "column 'kind' has type"),
        ((frame[[*NAMES, "kind"]], "kind"), TypeError, "target 'kind' has type"),
        ((frame[NAMES], frame["kind"]), TypeError, "y has type str"),
        ((X, y.astype(str)), TypeError, "y has type <U"),
        ((X, table["kind"].to_numpy()), TypeError, "y has dtype object"),
        ((frame[NAMES], table["cost"].to_numpy()), TypeError, "y of type ndarray is not accepted"),
        ((frame[NAMES], frame["cost"].repartition(npartitions=1)), ValueError, "y has 1 partitions and X has 2"),
        ((X[X[:, 0] > 1], y[y > 1]), ValueError, "a partition of y has shape"),
        ((frame[["cost"]], "cost"), ValueError, "X has no column beside the target"),
        ((X[:0], y[:0]), ValueError, "X has no rows"),
    ]
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=message):
            engine_for(*arguments)


def test_what_is_of_dask_but_no_table_is_refused(client, table):
    X, _ = in_chunks(table, "cost")
    later, future = dask.delayed(np.zeros((5, 2))), client.submit(np.zeros, (5, 2))
    for odd in (later, future):
        with pytest.raises(TypeError, match=f"X of type {type(odd).__name__} is not accepted: give a Dask array"):
            tg.PrivateRidge(epsilon=1.0).fit(odd, np.zeros(5))
        with pytest.raises(TypeError, match=f"y of type {type(odd).__name__} is not accepted beside a collection"):
            tg.PrivateRidge(epsilon=1.0).fit(X, odd)


def test_an_asynchronous_client_is_refused(client, table, monkeypatch):
    monkeypatch.setattr(distributed, "default_client", lambda: SimpleNamespace(asynchronous=True))
    with pytest.raises(TypeError, match="the active client is asynchronous"):
        tg.PrivateRidge(epsilon=1.0).fit(*in_chunks(table, "cost"))


def test_errors_of_a_cluster_say_what_to_do():
    assert "give them more, or make partitions smaller" in str(unread("KilledWorker"))
    assert "connect and make them again" in str(unread("FutureCancelledError"))
    assert "on rows that are not private" in str(unread("ValueError"))


# What is accepted


def test_too_many_labels_are_refused(client, monkeypatch):
    labels = da.from_array(np.array([f"label {k}" for k in range(60)]), chunks=20)
    rows = engine_for(
        labels.map_blocks(lambda y: np.zeros((len(y), 1)), chunks=(20, 1), new_axis=1), labels, target="label"
    )
    assert len(rows.labels()) == 60
    monkeypatch.setattr("tailguard.engines.dask.tasks.MOST_LABELS", 59)
    with pytest.raises(ValueError, match="more than 59 distinct labels: name the classes"):
        rows.labels()


def test_types_of_frames_are_those_of_memory(client):
    """Nullable columns, whole numbers, booleans and float32, with nulls."""
    frame = pd.DataFrame(
        {
            "a": pd.array([1, None, 3, 4], dtype="Int64"),
            "b": pd.array([True, False, None, True], dtype="boolean"),
            "c": np.array([1.5, np.nan, 2.5, 3.5], np.float32),
            "d": pd.array([0.1, 0.2, None, 0.4], dtype="double[pyarrow]"),
        }
    )
    expected = np.array([[1, 1, 1.5, 0.1], [np.nan, 0, np.nan, 0.2], [3, np.nan, 2.5, np.nan], [4, 1, 3.5, 0.4]])
    rows = engine_for(dd.from_pandas(frame, npartitions=2), target="none")
    np.testing.assert_array_equal(rows.map_rows(lambda X: X).compute(), expected)
    assert rows.names == ("a", "b", "c", "d")
    single = engine_for(dd.from_pandas(frame[["c"]], npartitions=2), target="none")
    assert single.map_rows(lambda X: X).dtype == np.float64  # declared so before a row is seen
    codes = single.integer_sum(lambda X, y: np.array([X.dtype == np.float32], np.int64), (1,))
    assert codes[0] == 2  # both partitions


@pytest.mark.parametrize("kept", [True, False])
def test_collections_that_are_on_the_workers_already(client, table, kept):
    """Persisted, and changed afterwards; also when the engine has to hold what nobody else does."""
    X, y = (rows.persist() for rows in in_chunks(table, "cost"))
    frame = dd.from_pandas(table, npartitions=3).persist()
    cases = {
        "array": (X, y),
        "changed array": (X * 1.0, y + 0.0),
        "one of them": (X, y.compute()),
        "frame": (frame[[*NAMES, "cost"]], "cost"),
        "series": (frame[NAMES], frame["cost"]),
        "both": (X, dd.from_pandas(table["cost"], npartitions=1).to_dask_array(lengths=True)),
    }
    with dask.config.set({"tailguard.persist": kept}):
        engines = {name: engine_for(*arguments) for name, arguments in cases.items()}
    del X, y, frame, cases
    expected = [np.sum(table[NAMES].to_numpy() > 1.0), np.sum(table["cost"] > 0)]
    for name, rows in engines.items():
        found = rows.integer_sum(lambda X, y: np.array([np.sum(X > 1.0), np.sum(y > 0)]), (2,))
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_targets_in_memory_beside_rows_on_workers(client, table):
    X, _ = in_chunks(table, "cost")
    y = table["cost"].to_numpy()
    count = lambda X, y: np.array([np.sum(y > 0), len(y)])  # noqa: E731
    np.testing.assert_array_equal(engine_for(X, y).integer_sum(count, (2,)), [np.sum(y > 0), N])
    np.testing.assert_array_equal(engine_for(X, y[:, None]).integer_sum(count, (2,)), [np.sum(y > 0), N])


def test_a_worker_uses_its_threads(client, table):
    """Few partitions in all threads each, many side by side; both the same."""
    from tailguard.engines.dask.tasks import integer_sum, packed, sum_share, total

    job = packed(partial(integer_sum, lambda X, y: np.array([len(X), np.sum(y > 0)]), (2,)), client)
    X, y = table[NAMES].to_numpy(), table["cost"].to_numpy()
    for parts in (1, 2, 7):
        cut = list(zip(np.array_split(X, parts), np.array_split(y, parts), strict=True))
        for threads in (1, 3):
            found = sum_share(job, total, [None] * parts, threads, cut)
            np.testing.assert_array_equal(found, [N, np.sum(y > 0)])


def test_many_partitions_are_added_in_a_tree(client, table):
    """More shares than one task adds up: rows that are not held have a share each."""
    X, y = in_chunks(table, "cost", parts=40)
    with dask.config.set({"tailguard.persist": False}):
        rows = engine_for(X, y)
        found = rows.integer_sum(lambda X, y: np.array([len(X), np.sum(y > 0)]), (2,))
    np.testing.assert_array_equal(found, [N, np.sum(table.cost > 0)])
    some = np.random.default_rng(1).permutation(N)[:50]
    memory = InMemory(table[NAMES].to_numpy(), table["cost"].to_numpy())
    from tailguard.engines.vectors import RowValues
    from tailguard.truncation import Grid, L2Clip

    grid = Grid.of(L2Clip(1.0), N)
    expected = memory.truncated_sum(RowValues(), grid, some)
    np.testing.assert_array_equal(rows.truncated_sum(RowValues(), grid, some), expected)


def test_sparse_chunks_are_made_dense(client, table):
    X, y = in_chunks(table, "cost")
    few = da.where(X > 3.0, X, 0.0)
    sparse = few.map_blocks(csr_array, dtype=float, meta=csr_array((0, 0)))
    count = lambda X, y: np.array([np.sum(X > 4.0), X.size])  # noqa: E731
    expected = [np.sum(table[NAMES].to_numpy() > 4.0), N * D]
    np.testing.assert_array_equal(engine_for(sparse, y).integer_sum(count, (2,)), expected)


def test_a_worker_with_more_rows_than_memory_adds_up_a_few_at_a_time(client, table, monkeypatch):
    """What Dask wrote to disk is read again by every task that needs it, so no task may need it all."""
    monkeypatch.setattr("tailguard.engines.dask.parts._KEPT", 1e-9)
    with dask.config.set({"tailguard.persist": True}):
        rows = engine_for(*in_chunks(table, "cost", parts=12))
    shares = rows.parts._shared()
    assert sorted(i for share, _ in shares for i in share) == list(range(12))
    assert {(len(share), threads) for share, threads in shares} == {(1, 1)}
    np.testing.assert_array_equal(
        rows.integer_sum(lambda X, y: np.array([len(X), np.sum(y > 0)]), (2,)), [N, np.sum(table.cost > 0)]
    )


@pytest.mark.parametrize(("kept", "times"), [(True, 1), (False, 2)])
def test_partitions_of_unknown_length_are_loaded_once_to_be_counted_and_held(client, table, tmp_path, kept, times):
    """The first one twice, since it tells whether there is room."""

    def noted(frame, folder=str(tmp_path)):
        with open(f"{folder}/{frame.index[0]}", "a") as file:
            file.write("x")
        return frame

    frame = dd.from_pandas(table[[*NAMES, "cost"]], npartitions=6)
    with dask.config.set({"tailguard.persist": kept}):
        rows = engine_for(frame.map_partitions(noted, meta=frame._meta), "cost")
        assert rows.lengths == (500,) * 6
        np.testing.assert_array_equal(rows.integer_sum(lambda X, y: np.array([len(X)]), (1,)), [N])
    loaded = sorted(len(path.read_text()) for path in tmp_path.iterdir())
    assert loaded == [times] * 5 + [times + 1]
