"""Rows larger than memory: what a source accepts, and that a fit from it is the fit in memory, to the last bit."""

from __future__ import annotations

import decimal
import gzip
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tailguard as tg
from tailguard.engines import csv, elsewhere, engine_for, streamed
from tailguard.engines.ahead import read_ahead
from tailguard.engines.memory import InMemory
from tailguard.engines.stored import MappedRows
from tailguard.engines.streamed import Streamed

N, D = 3000, 4
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 64 rows and buffers of 1024 at four columns, so that every pass has several."""
    monkeypatch.setattr("tailguard.engines.engine._BLOCK_VALUES", 2**8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows in memory and in a Parquet file of row groups of 700; a number, a count, a label and a text as targets."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(N, D))
    X[::50, 1] = np.nan
    X[7, 2], X[8, 2] = np.inf, 1e308
    cost = np.nan_to_num(X[:, 0]) + rng.standard_t(2.5, N)
    columns = {name: X[:, j] for j, name in enumerate(NAMES)}
    columns |= {"cost": cost, "visits": rng.poisson(np.minimum(0.5 + X[:, 0], 9.0)), "ill": cost > 1.0}
    columns["kind"] = np.array(["low", "middle", "high"])[np.digitize(cost, [0.5, 1.5])]
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=700)
    return X, columns, folder / "rows.parquet"


def source(data, target=None, memory=0) -> tg.Source:
    return tg.Source(data[2], NAMES, target=target, memory=memory)


METHODS = {
    "clipped": {"method": "clipped", "clip": 3.0, "steps": 4},
    "clipped, Poisson batches": {"method": "clipped", "clip": 3.0, "steps": 4, "batch_size": 200},
    "smoothed": {"method": "smoothed", "scale": 3.0, "steps": 4},
    "trimmed": {"method": "trimmed", "bounds": (-5.0, 5.0), "steps": 2},
    "aggregate": {"method": "aggregate", "constraint": tg.constraints.L2Ball(10.0), "blocks": 40},
}
MODELS = {
    "cost": tg.PrivateRidge,
    "visits": tg.PrivatePoissonRegressor,
    "ill": tg.PrivateLogisticRegression,
    "kind": tg.PrivateLogisticRegression,
}


def assert_same(a, b):
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    assert a.privacy_.events == b.privacy_.events
    assert np.any(a.coef_) or np.any(a.intercept_)


CASES = [(target, method) for target in MODELS for method in METHODS if target == "cost" or method != "aggregate"]


@pytest.mark.parametrize(("target", "method"), CASES)
def test_a_streamed_fit_is_the_fit_in_memory(data, target, method):
    X, columns, _ = data
    model = MODELS[target](random_state=1, **METHODS[method])
    expected = model.fit(X, columns[target])
    coefficients = expected.coef_.copy(), expected.predict(X)
    found = MODELS[target](random_state=1, threads=1, **METHODS[method]).fit(source(data), y=target)
    assert_same(expected, found)
    assert np.array_equal(coefficients[0], found.coef_)
    assert list(found.feature_names_in_) == NAMES
    assert found.n_features_in_ == D
    predicted = found.predict(source(data))
    if predicted.dtype.kind == "f":
        np.testing.assert_allclose(predicted, coefficients[1], rtol=1e-12)
    else:
        np.testing.assert_array_equal(predicted, coefficients[1])


@pytest.mark.parametrize("target", [*MODELS, "bulk"])
def test_a_streamed_default_fit_is_the_fit_in_memory(data, target):
    """The default asks dozens of queries, matrix products among them: none may depend on where rows are cut."""
    X, columns, _ = data
    kind = MODELS.get(target, tg.PrivateHuberRegressor)
    column = "cost" if target == "bulk" else target
    expected = kind(epsilon=20.0, random_state=1).fit(X, columns[column])
    for threads, memory in ((1, 0), (3, 0), (2, 2**29)):
        found = kind(epsilon=20.0, random_state=1, threads=threads).fit(source(data, memory=memory), column)
        assert_same(expected, found)


def test_default_means_are_those_in_memory(data):
    X, _, path = data
    expected = tg.private_mean(X, epsilon=5.0, random_state=1).value
    np.testing.assert_array_equal(expected, tg.private_mean(source(data), epsilon=5.0, random_state=1).value)
    single = tg.private_mean(tg.Source(path, "x0", memory=0), epsilon=5.0, random_state=1).value
    assert single == tg.private_mean(X[:, 0], epsilon=5.0, random_state=1).value


def test_what_fits_into_memory_is_read_once_and_gives_the_same(data, monkeypatch):
    X, columns, _ = data
    reads = []
    plain = tg.Source.read
    monkeypatch.setattr(tg.Source, "read", lambda self, *args: (reads.append(1), plain(self, *args))[1])
    models = [
        tg.PrivateRidge(random_state=2, **METHODS["clipped"]).fit(*rows)
        for rows in ((X, columns["cost"]), (source(data, "cost", memory=2**29),), (source(data, "cost"),))
    ]
    assert_same(models[0], models[1])
    assert_same(models[0], models[2])
    assert len(reads) == 1 + 4  # kept, and streamed in four steps


def test_every_way_to_name_the_rows(data):
    X, columns, path = data
    small = {name: columns[name] for name in [*NAMES, "cost"]}
    expected = tg.PrivateRidge(random_state=3, **METHODS["clipped"]).fit(X, columns["cost"])
    pq.write_table(pa.table(small), path.parent / "small.parquet")
    table = pq.read_table(path.parent / "small.parquet")
    for X_given, y in [
        (str(path.parent / "small.parquet"), "cost"),
        (path.parent / "small.parquet", "cost"),
        ([path.parent / "small.parquet"], "cost"),
        (str(path.parent / "sm*.parquet"), "cost"),
        (table, "cost"),
        (ds.dataset(table), "cost"),
        (table.to_batches()[0], "cost"),
        (table.select(NAMES), columns["cost"]),
        (tg.Source(table, target="cost"), None),
        (tg.Source(path, NAMES), "cost"),
    ]:
        assert_same(expected, tg.PrivateRidge(random_state=3, **METHODS["clipped"]).fit(X_given, y))


def test_minimize_and_means_take_a_source(data):
    X, columns, path = data
    arguments = {"method": "clipped", "epsilon": 1.0, "clip": 5.0, "step_size": 0.1, "steps": 3, "random_state": 0}
    expected = tg.minimize(tg.losses.Huber(2.0), X, columns["cost"], **arguments)
    found = tg.minimize(tg.losses.Huber(2.0), source(data), "cost", **arguments)
    np.testing.assert_array_equal(expected.path, found.path)
    for method in ({"method": "clamped", "clip": 2.0}, {"method": "trimmed", "bounds": (0.0, 5.0), "trim": 9}):
        np.testing.assert_array_equal(
            tg.private_mean(X, random_state=1, **method).value,
            tg.private_mean(source(data), random_state=1, **method).value,
        )
        single = tg.private_mean(tg.Source(path, "x0", memory=0), random_state=1, **method).value
        assert isinstance(single, float)
        assert single == tg.private_mean(X[:, 0], random_state=1, **method).value
    with pytest.raises(ValueError, match="trim=1500 is not accepted with 3000 rows"):
        tg.private_mean(source(data), method="trimmed", bounds=(0.0, 1.0), trim=1500)


def test_custom_losses_see_the_same_blocks(data):
    """A user's function may use matrix products, which round a row by its place in the block."""
    X, columns, _ = data
    loss = tg.losses.PerRow(lambda w, X, y: np.clip(X @ w - y, -1.0, 1.0)[:, None] * np.clip(X, 0.0, 9.0))
    arguments = {"method": "clipped", "epsilon": 1.0, "clip": 5.0, "step_size": 0.1, "steps": 3, "random_state": 0}
    for batch_size in (None, 300):
        expected = tg.minimize(loss, X, columns["cost"], batch_size=batch_size, **arguments)
        found = tg.minimize(loss, source(data), "cost", batch_size=batch_size, **arguments)
        np.testing.assert_array_equal(expected.path, found.path)


def test_classes_may_be_named_and_others_count_for_nothing(data):
    X, columns, _ = data
    classes = ["high", "low"]
    expected = tg.PrivateLogisticRegression(random_state=1, classes=classes, **METHODS["clipped"])
    found = tg.PrivateLogisticRegression(random_state=1, classes=classes, **METHODS["clipped"])
    assert_same(expected.fit(X, columns["kind"]), found.fit(source(data), "kind"))
    assert set(found.predict(source(data))) <= set(classes)


def test_predict_takes_the_columns_of_the_fit_by_name(data):
    _, columns, path = data
    model = tg.PrivateRidge(random_state=1, **METHODS["clipped"]).fit(source(data), "cost")
    turned = pa.table({name: columns[name] for name in ["cost", *NAMES[::-1]]})
    np.testing.assert_array_equal(model.predict(turned), model.predict(path))
    with pytest.raises(ValueError, match="'x3'"):
        model.predict(turned.drop_columns("x3"))
    unnamed = tg.PrivateRidge(random_state=1, **METHODS["clipped"]).fit(*data_arrays(data))
    with pytest.raises(ValueError, match="2 features"):
        unnamed.predict(turned.select(["x0", "x1"]))


def data_arrays(data):
    return data[0], data[1]["cost"]


# What columns are accepted, and as what numbers.


def numbers_of(table, **options) -> np.ndarray:
    rows = engine_for(tg.Source(table, memory=0, **options), target="none")
    return rows.take(np.arange(rows.n))[0]


def test_every_type_of_number_and_null():
    large = 2**63 - 1
    columns = {
        "int8": pa.array([1, None, -3], pa.int8()),
        "int64": pa.array([large, 2, None], pa.int64()),
        "uint64": pa.array([2**64 - 1, 2, 3], pa.uint64()),
        "bool": pa.array([True, None, False]),
        "decimal": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.5")]),
        "float16": pa.array(np.array([1.5, np.nan, -2.0], np.float16)),
        "float32": pa.array([0.1, None, np.inf], pa.float32()),
        "float64": pa.array([1e308, None, 5e-324]),
        "null": pa.nulls(3),
    }
    found = numbers_of(pa.table(columns))
    expected = np.array(
        [
            [1.0, np.nan, -3.0],
            [float(large), 2.0, np.nan],
            [float(2**64 - 1), 2.0, 3.0],
            [1.0, np.nan, 0.0],
            [1.25, np.nan, -3.5],
            [1.5, np.nan, -2.0],
            [np.float32(0.1), np.nan, np.inf],
            [1e308, np.nan, 5e-324],
            [np.nan] * 3,
        ]
    ).T
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("types", "dtype"), [(["f4", "f4"], np.float32), (["f4", "f8"], np.float64)])
def test_float32_stays_if_all_are(types, dtype):
    table = pa.table({name: np.arange(3, dtype=name) for name in dict.fromkeys(types)} | {"y": np.arange(3.0)})
    rows = engine_for(tg.Source(table, memory=0), "y")
    assert rows.take(np.arange(3))[0].dtype == dtype


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["secret", "1"]),
        pa.array([b"secret", b"1"]),
        pa.array(["secret", "1"]).dictionary_encode(),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([[1.0], [2.0]]),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_refused_by_name_and_type_before_anything_is_read(column, monkeypatch):
    monkeypatch.setattr(tg.Source, "read", lambda *_: pytest.fail("data was read"))
    table = pa.table({"ok": [1.0, 2.0], "diagnosis": column, "y": [1.0, 2.0]})
    with pytest.raises(TypeError, match="'diagnosis' has type") as caught:
        tg.PrivateRidge().fit(table, "y")
    assert "secret" not in str(caught.value)
    with pytest.raises(TypeError, match="'diagnosis' has type"):
        tg.PrivateRidge().fit(tg.Source(table, ["ok"]), "diagnosis")
    engine_for(tg.Source(table, ["ok"]), "y")  # a column that is not used may be anything


def test_folders_with_partitions_and_files_that_lack_a_column(tmp_path):
    for year, table in {2023: pa.table({"a": [1, 2], "b": [1.5, 2.5]}), 2024: pa.table({"a": [3.0]})}.items():
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "rows.parquet")
    dataset = ds.dataset(
        tmp_path, partitioning="hive", schema=pa.schema({"a": pa.float64(), "b": pa.float64(), "year": pa.int32()})
    )
    found = numbers_of(dataset)
    np.testing.assert_array_equal(found, [[1.0, 1.5, 2023.0], [2.0, 2.5, 2023.0], [3.0, np.nan, 2024.0]])
    np.testing.assert_array_equal(numbers_of(dataset.filter(ds.field("a") > 1.5), columns=["a"]), [[2.0], [3.0]])
    assert tg.Source(tmp_path, ["a", "year"]).n == 3


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0.5], [2**53 + 1], [0.5, 2.0**53]),
        ([3], [0.5], [3.0, 0.5]),
        (pa.array([3], pa.int32()), [2**40], [3.0, 2.0**40]),
        ([0.5], ["2.5", "SECRET"], [0.5, 2.5, np.nan]),
        ([True], [7], [1.0, 7.0]),
    ],
    ids=["float, integer", "integer, float", "short, long", "number, text", "truth, integer"],
)
def test_no_value_raises_where_files_differ_in_types(tmp_path, first, second, expected):
    for name, cells in {"0.parquet": first, "1.parquet": second}.items():
        pq.write_table(pa.table({"a": cells}), tmp_path / name)
    np.testing.assert_array_equal(numbers_of(tmp_path)[:, 0], expected)


# CSV.


def csv_rows(tmp_path, text: bytes, name: str = "rows.csv", **options) -> np.ndarray:
    (tmp_path / name).write_bytes(text)
    return numbers_of(tmp_path / name, **options)


def test_cells_of_csv_are_numbers_or_missing(tmp_path):
    cells = [
        "1",
        "-2.5e3",
        "+4",
        " 5 ",
        '"6"',
        "",
        "NA",
        "secret",
        "1e400",
        "-1e-400",
        "nan",
        "-inf",
        "0x10",
        "\xff",
        "1,5",
    ]
    lines = [f"{cell},0" for cell in cells]
    found = csv_rows(tmp_path, "\n".join(["a,b", *lines]).encode("latin-1"))
    expected = [1, -2500, 4, 5, 6, np.nan, np.nan, np.nan, np.inf, 0, np.nan, -np.inf, np.nan, np.nan]
    np.testing.assert_array_equal(found[:, 0], [*expected, np.nan])  # the last line has three cells
    np.testing.assert_array_equal(found[:, 1], [0.0] * 14 + [np.nan])


def wild_lines(chance: random.Random) -> tuple[list[bytes], list[int], int]:
    """Lines of random bytes; good ones, whose cells are all the line's number; those numbers; how many columns."""
    width = chance.choice([1, 2, 3])
    alphabet = [b'"', b",", b"1", b"a", b"\r", b" ", b"\xff", b"\0", b"'", b"\\", b";", b"\xc3", b"\xe2\x80"]
    lines = [b"".join(chance.choices(alphabet, k=chance.randrange(9))) for _ in range(chance.randrange(1, 9))]
    good = [i for i in range(len(lines)) if chance.random() < 0.5]
    for i in good:
        lines[i] = b",".join([chance.choice([b"%d", b'"%d"', b" %d "]) % i] * width)
    return lines, good, width


def test_line_i_is_row_i_whatever_is_in_the_lines(tmp_path, monkeypatch, capfd):
    """Random bytes among good lines: none moves, adds, removes or ends a row, and nobody hears of them."""
    chance = random.Random(0)
    for _ in range(400):
        lines, known, width = wild_lines(chance)
        monkeypatch.setattr(csv, "BLOCK_BYTES", chance.choice([1, 3, 16, 1000]))
        header = b",".join(b"c%d" % j for j in range(width))
        last = chance.choice([b"\n", b""]) if lines[-1] else b"\n"
        text = chance.choice([b"\n", b"\r\n"]).join([header, *lines]) + last
        path = tmp_path / chance.choice(["wild.csv", "wild.csv.gz"])
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        numbers = numbers_of(path)
        assert numbers.shape == (len(lines), width)
        np.testing.assert_array_equal(numbers[known], np.repeat(np.reshape(known, (-1, 1)), width, axis=1))
        source = tg.Source(path, columns=["c0"], types={f"c{width - 1}": "text"}, memory=0)
        assert source.n == len(lines)
        if width > 1:
            labels = np.concatenate([found for _, found in source.with_target(f"c{width - 1}").read(4, True)])
            assert len(labels) == len(lines)
            assert [label.strip() for label in labels[known]] == [str(i) for i in known]
    assert capfd.readouterr() == ("", "")


def test_a_line_means_the_same_in_any_company():
    """What becomes of a line is found for all lines of a block at once, and as for the line alone."""
    chance = random.Random(1)
    for _ in range(400):
        wild, _, width = wild_lines(chance)
        lines = csv.Lines(width, ",")
        alone = [lines.rows_only(line + b"\n") for line in wild]
        assert lines.rows_only(b"\n".join(wild) + b"\n") == b"".join(alone)


@pytest.mark.parametrize(
    "cell", [b"\xef\xbb\xbf7", b'\xef\xbb\xbf"7"', b"7\x00", b"1e0000000000000001", b"1_0", b"nan(7)"]
)
def test_a_cell_means_the_same_wherever_its_block_begins_and_whatever_is_beside_it(tmp_path, monkeypatch, cell):
    lines = [b"1,x", cell + b",2", b"3,4", cell + b"," + cell]
    alone = np.concatenate([csv_rows(tmp_path, b"a,b\n" + line + b"\n") for line in lines])
    for size in (1, 2**22):
        monkeypatch.setattr(csv, "BLOCK_BYTES", size)
        np.testing.assert_array_equal(csv_rows(tmp_path, b"\n".join([b"a,b", *lines])), alone)
    np.testing.assert_array_equal(alone[2], [3.0, 4.0])


def test_a_line_that_is_too_long_is_missing_and_hides_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "LONGEST", 20)
    lines = [b"1,1", b"2," + b"2" * 18, b"3," + b"3" * 19, b"4," + b"4" * 500, b"5,5"]
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(csv, "BLOCK_BYTES", size)
        for end in (b"\n", b"\r\n"):
            found = csv_rows(tmp_path, end.join([b"a,b", *lines, b""]))
            np.testing.assert_array_equal(found[:, 0], [1, 2, np.nan, np.nan, 5])


@pytest.mark.parametrize("line", [b'"7,7', b'7,"7', b"7", b"7,7,7", b'7,"', b'"",7,"x"y"', b'"', b'7"7,7', b""])
def test_a_line_that_is_no_row_is_a_row_of_missing_cells(tmp_path, line):
    good = [f"{k},{k}.5".encode() for k in range(1, 9)]
    found = csv_rows(tmp_path, b"\n".join([b"a,b", *good[:3], line, *good[3:]]) + b"\n")
    np.testing.assert_array_equal(found[:, 0], [1, 2, 3, np.nan, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(found[:, 1], found[:, 0] + 0.5)


def test_formats_of_csv(tmp_path):
    expected = [[1.0, 2.0], [3.0, 4.0]]
    text = b"a,b\n1,2\n3,4\n"
    for name, written, options in [
        ("rows.csv", text, {}),
        ("rows.csv", text.replace(b"\n", b"\r\n"), {}),
        ("rows.csv", text[:-1], {}),
        ("rows.csv.gz", gzip.compress(text), {}),
        ("rows.tsv", text.replace(b",", b"\t"), {}),
        ("rows.data", text, {"format": "csv"}),
        ("rows.csv", text.replace(b",", b";"), {"delimiter": ";"}),
    ]:
        np.testing.assert_array_equal(csv_rows(tmp_path, written, name, **options), expected)
    np.testing.assert_array_equal(csv_rows(tmp_path, b"a\n1\n\n3\n"), [[1.0], [np.nan], [3.0]])
    (tmp_path / "many").mkdir()
    for k in range(3):
        (tmp_path / "many" / f"{k}.csv").write_bytes(text)
    np.testing.assert_array_equal(numbers_of(tmp_path / "many", format="csv"), expected * 3)


def test_a_model_from_csv_is_that_of_its_numbers(data, tmp_path):
    X, columns, _ = data
    lines = [",".join([*map(repr, row), kind]) for row, kind in zip(X.tolist(), columns["kind"], strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join([*NAMES, "kind"]), *lines]))
    rows = tg.Source(tmp_path / "rows.csv", target="kind", types={"kind": "text"}, memory=0)
    found = tg.PrivateLogisticRegression(random_state=1, **METHODS["clipped"]).fit(rows)
    expected = tg.PrivateLogisticRegression(random_state=1, **METHODS["clipped"]).fit(X, columns["kind"])
    assert_same(expected, found)
    with pytest.raises(TypeError, match="'kind' has type string"):
        tg.PrivateRidge().fit(rows)


def test_labels_that_are_missing_or_no_text_do_not_raise_when_classes_are_named(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"x,kind\n1,a\n2,b\n3,\n4,\xff\n5\n6,c\n")
    rows = tg.Source(tmp_path / "rows.csv", target="kind", types={"kind": "text"}, memory=0)
    model = tg.PrivateLogisticRegression(classes=["a", "b"], method="clipped", clip=1.0, allow_large_delta=True)
    assert model.fit(rows).privacy_.private
    with pytest.raises(ValueError, match="missing labels"):
        tg.PrivateLogisticRegression(method="clipped", clip=1.0).fit(rows)


# What is refused, and that nothing of the data is repeated.


def test_arguments_of_a_source_are_checked(data, tmp_path):
    path = data[2]
    for error, match, arguments in [
        (FileNotFoundError, "does not exist", {"data": tmp_path / "none.parquet"}),
        (FileNotFoundError, "does not exist", {"data": str(tmp_path / "*.csv")}),
        (TypeError, "more than once", {"data": 3.0}),
        (TypeError, "more than once", {"data": iter([])}),
        (ValueError, "format must be one of", {"data": path, "format": "excel"}),
        (ValueError, "columns names the column 'z'", {"data": path, "columns": ["z"]}),
        (ValueError, "columns names 'z', 'zz': there is ", {"data": path, "columns": ["z", "zz"]}),
        (TypeError, "must be the name of a column", {"data": path, "columns": [1]}),
        (ValueError, "each once", {"data": path, "columns": ["x0", "x0"]}),
        (ValueError, "at least one", {"data": path, "columns": []}),
        (ValueError, "target names the column 'z'", {"data": path, "target": "z"}),
        (ValueError, "leave it out", {"data": path, "columns": ["x0"], "target": "x0"}),
        (ValueError, "memory must be", {"data": path, "memory": -1}),
        (TypeError, "memory must be", {"data": path, "memory": "1GB"}),
        (ValueError, "for CSV only", {"data": path, "types": {"x0": "number"}}),
        (ValueError, r"types\['x0'\] must be one of", {"data": path, "types": {"x0": "integer"}}),
        (ValueError, "one character", {"data": path, "delimiter": ", "}),
        (ValueError, "for files only", {"data": pa.table({"a": [1.0]}), "format": "csv"}),
    ]:
        with pytest.raises(error, match=match):
            tg.Source(**arguments)
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ValueError, match="two columns named 'a'"):
        tg.Source(tmp_path / "twice.csv")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="no rows"):
        engine_for(tmp_path / "empty.csv", target="none")


def test_a_fit_says_what_it_needs(data):
    table = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(ValueError, match="y='cost'"):
        tg.PrivateRidge().fit(table)
    with pytest.raises(ValueError, match="y has shape"):
        tg.PrivateRidge().fit(table, np.ones(3))
    with pytest.raises(ValueError, match="minimum of 2"):
        tg.PrivateRidge().fit(table.slice(0, 1), "y")
    with pytest.raises(TypeError, match="more than once"):
        tg.PrivateRidge().fit(table.to_reader(), "y")
    with pytest.raises(ValueError, match="at least two labels"):
        tg.PrivateLogisticRegression(classes=["a"]).fit(table, "y")


def test_a_damaged_or_changed_file_is_refused_without_a_word_about_its_content(tmp_path):
    secret = 123.456
    table = pa.table({"x": np.full(1000, secret), "y": np.arange(1000.0)})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, use_dictionary=False, compression="none")
    rows = engine_for(tg.Source(path, memory=0), "y")
    damaged = bytearray(path.read_bytes())
    damaged[4:2000] = b"\xff" * 1996
    path.write_bytes(bytes(damaged))
    with pytest.raises(OSError, match="could not be read") as caught:
        rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(secret) not in str(caught.value)
    pq.write_table(table.slice(1), path)
    with pytest.raises(OSError, match="no longer 1000 rows"):
        rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))
    pq.write_table(pa.concat_tables([table, table]), path)
    with pytest.raises(OSError, match="no longer 1000 rows"):
        rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.list_(pa.string())], ids=str)
def test_a_file_that_was_replaced_by_one_of_other_types_is_refused_without_its_content(
    tmp_path, monkeypatch, kind, threads
):
    monkeypatch.setenv("TAILGUARD_NUM_THREADS", threads)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": np.ones(50), "z": np.ones(50), "y": np.ones(50)}), path)
    rows = engine_for(tg.Source(path, memory=0), "y")
    cells = [["SECRET"]] * 50 if pa.types.is_list(kind) else ["SECRET"] * 50
    for names in (["x", "z", "y"], ["x", "other", "y"]):
        changed = pa.table({names[0]: np.ones(50), names[1]: pa.array(cells, kind), names[2]: np.ones(50)})
        pq.write_table(changed, path)
        with pytest.raises(OSError, match="could not be read") as caught:
            rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))
        assert "SECRET" not in str(caught.value)
        assert caught.value.__context__ is None


def test_without_arrow_it_says_what_to_install(monkeypatch, data):
    for module in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"tailguard\[arrow\]"):
        tg.PrivateRidge().fit(str(data[2]), "cost")


# Which engine, and how it reads.


def test_arrays_stay_in_memory_and_large_mapped_ones_are_streamed(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(500, 3))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert isinstance(engine_for(X, X[:, 0]), InMemory)
    assert isinstance(engine_for(mapped, X[:, 0]), InMemory)
    assert not elsewhere(X)
    assert not elsewhere([[1.0], [2.0]])
    monkeypatch.setattr(streamed, "_RESIDENT", 1000)
    assert isinstance(engine_for(mapped[10:], X[10:, 0]), Streamed)
    assert isinstance(engine_for(X, X[:, 0]), InMemory)
    models = [tg.PrivateRidge(random_state=0, **METHODS["clipped"]).fit(rows, X[:, 0]) for rows in (X, mapped)]
    assert_same(*models)


def test_changes_to_a_private_mapping_are_kept(tmp_path, monkeypatch):
    """Pages are let go of after use; those that only this process has must stay."""
    monkeypatch.setattr("tailguard.engines.engine._BLOCK_VALUES", 2**10)
    np.save(tmp_path / "X.npy", np.zeros((2**17, 1)))
    for mode in ("c", "r+", "r"):
        mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
        if mode != "r":
            mapped[:] = 1.0
        rows = Streamed(MappedRows(mapped, None), 1)
        expected = 0 if mode == "r" and not mapped.any() else len(mapped)
        for _ in range(2):
            assert rows.integer_sum(lambda X, y: np.array([int(X.sum())]), (1,))[0] == expected


def test_the_reader_is_ahead_by_no_more_than_it_may():
    produced = []

    def items():
        for k in range(100):
            produced.append(k)
            yield k

    ahead = read_ahead(items(), 2)
    assert next(ahead) == 0
    time.sleep(0.2)
    assert len(produced) <= 4  # one in hand, two waiting, one on its way
    assert list(ahead) == list(range(1, 100))


@pytest.mark.parametrize("how", ["error in the reader", "closed early"])
def test_the_reader_ends_with_its_pass(how):
    def items():
        yield from range(5)
        raise KeyError("of the reader")

    before = threading.active_count()
    ahead = read_ahead(items(), 2)
    if how == "closed early":
        next(ahead)
        ahead.close()
    else:
        with pytest.raises(KeyError, match="of the reader"):
            list(ahead)
    assert threading.active_count() == before


def test_what_is_read_ahead_is_closed_by_its_reader():
    """And not whenever the garbage collector comes by, where an interrupt is lost."""
    closed_in = []

    def items():
        try:
            yield from range(100)
        finally:
            closed_in.append(threading.current_thread().name)

    ahead = read_ahead(items(), 2)
    next(ahead)
    ahead.close()
    assert closed_in == ["tailguard-reader"]


def test_an_interrupt_before_the_reader_starts_leaves_nothing_behind(monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(read_ahead((k for k in range(3)), 2))


def test_rows_that_are_taken_twice_are_not_taken_for_neighbours(data):
    rows = engine_for(source(data, "cost"), threads=1)
    X, y = rows.take(np.array([0, 0, 2]))
    np.testing.assert_array_equal(X[0], X[1])
    assert y[0] == y[1]
    np.testing.assert_array_equal(X[2], rows.take(np.array([2]))[0][0])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_pass_ends_whole_when_a_function_fails(data, threads):
    """The error is the function's own, every thread has stopped by then, and the next pass is right."""
    rows = engine_for(source(data, "cost"), threads=threads)
    calls = []

    def fail_late(X, y):
        calls.append(len(X))
        if sum(calls) > N // 2:
            raise KeyError("of the function")
        return np.array([len(X)])

    with pytest.raises(KeyError, match="of the function"):
        rows.integer_sum(fail_late, (1,))
    assert not [thread for thread in threading.enumerate() if thread.name == "tailguard-reader"]
    seen = len(calls)
    time.sleep(0.05)
    assert len(calls) == seen
    assert rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))[0] == N


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_row_comes_with_its_own_target_whatever_the_threads(data, threads):
    """Buffers are worked on while the next ones are filled: none may be written to again."""
    X, columns, _ = data
    rows = engine_for(source(data, "cost"), threads=threads)
    expected = np.sum(np.round(1e6 * columns["cost"]).astype(np.int64) * np.round(X[:, 0]).astype(np.int64))

    def products(X, y):
        time.sleep(0.001)  # time for the next buffer
        return np.array([np.sum(np.round(1e6 * y).astype(np.int64) * np.round(X[:, 0]).astype(np.int64))])

    assert rows.integer_sum(products, (1,))[0] == expected


MEMORY = """
import resource, sys
import numpy as np, tailguard as tg
from tailguard.engines import engine_for
from tailguard.engines.vectors import Gradients
from tailguard.truncation import Grid, L2Clip

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
rows = engine_for(tg.Source([sys.argv[1]] * int(sys.argv[2]), memory=0), "y")
vectors, grid = Gradients(tg.losses.Squared(), np.zeros((1, rows.columns)), False), Grid.of(L2Clip(1.0), rows.n)
few = engine_for(tg.Source(sys.argv[1], memory=0), "y")
few.truncated_sum(vectors, grid), few.integer_sum(lambda X, y: np.array([len(X)]), (1,))
before = peak()
rows.truncated_sum(vectors, grid)
rows.truncated_sum(vectors, grid, np.arange(0, rows.n, 997))  # as a Poisson sample
assert rows.integer_sum(lambda X, y: np.array([len(X)]), (1,))[0] == rows.n
print(rows.n * (rows.columns + 1) * 8 // 2**20, peak() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is not on Windows")
def test_peak_memory_does_not_grow_with_the_rows(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({f"x{j}": rng.normal(size=2**18) for j in range(7)} | {"y": rng.normal(size=2**18)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2**16)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "rows.parquet"), "40"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    data, growth = map(int, done.stdout.split())
    assert data == 640
    assert growth < 100, f"{growth} MiB for {data} MiB of rows"
