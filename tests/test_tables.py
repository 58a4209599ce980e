"""Tables in files: what is declared, one line is one row, and every cell has a meaning."""

from __future__ import annotations

import gzip
import json
import random
import tomllib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tailguard.engines import csv
from tailguard.tables import (
    CATEGORY,
    Column,
    CsvFormat,
    Recipe,
    RowWriter,
    TableSchema,
    choose,
    encode_features,
    encode_target,
    kept_cells,
    open_table,
    training_rows,
)
from tailguard.tables.cells import numbers, places
from tailguard.tables.schema import template

SEX = Column("sex", CATEGORY, ("female", "male"))
STAGE = Column("stage", CATEGORY, (1, 2, 3))
RECIPE = Recipe((Column("age"), SEX, STAGE), Column("cost"))


def write(path, text):
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def encoded(path, recipe=RECIPE):
    table = open_table(path, recipe.csv)
    blocks = list(table.blocks([*recipe.columns, recipe.target.name]))
    return (
        np.concatenate([encode_features(recipe, block) for block in blocks]),
        np.concatenate([encode_target(recipe, block) for block in blocks]),
    )


class TestCsv:
    @pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.txt"])
    def test_names_rows_and_cells(self, tmp_path, name):
        path = write(tmp_path / name, '\ufeffage,"sex, at birth",cost\r\n30,"female",1.5\r\n41,male,2\r\n')
        table = open_table(path)
        assert (table.names, table.rows, table.typed) == (("age", "sex, at birth", "cost"), 2, False)
        (block,) = table.blocks(["cost", "sex, at birth"])
        assert block.to_pydict() == {"cost": ["1.5", "2"], "sex, at birth": ["female", "male"]}

    def test_a_line_that_is_no_row_is_missing_in_every_column(self, tmp_path):
        lines = ["50,male,2,7", "50,male", "50,male,2,7,8", '50,"male,2,7', "", 'a"b,"c,2,7', "50,male,2,7"]
        X, y = encoded(write(tmp_path / "t.csv", "age,sex,stage,cost\n" + "\n".join(lines)))
        assert X.shape == (7, 5)
        assert np.isnan(X[1:6]).all()
        assert np.isnan(y[1:6]).all()
        np.testing.assert_array_equal(X[[0, 6]], [[50, 1, 0, 1, 0]] * 2)

    def test_a_quoted_cell_may_hold_the_delimiter_and_quotes(self, tmp_path):
        table = open_table(write(tmp_path / "t.csv", 'a,b\n"x, ""y""",2\n'))
        (block,) = table.blocks(["a"])
        assert block.to_pydict() == {"a": ['x, "y"']}

    def test_the_delimiter_shows_in_the_header_and_can_be_declared(self, tmp_path):
        path = write(tmp_path / "t.csv", "age;cost\n30;1,5\n")
        assert open_table(path).names == ("age", "cost")
        recipe = Recipe((Column("age"),), Column("cost"), CsvFormat(";", ","))
        assert encoded(path, recipe)[1] == [1.5]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "must name every column"),
            (b"a,,c\n", "must name every column"),
            (b"a,b,a\n", "two columns named 'a'"),
            (b"a,\xff\n", "not UTF-8"),
            ("a,b\n".encode("utf-16"), "not UTF-8"),
        ],
    )
    def test_a_header_that_is_none_is_refused(self, tmp_path, content, words):
        with pytest.raises(ValueError, match=words):
            open_table(write(tmp_path / "t.csv", content)).names  # noqa: B018

    def test_a_cut_gzip_file_is_said(self, tmp_path):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(gzip.compress(b"a,b\n" + random.Random(0).randbytes(5000).hex().encode())[:-2000])
        with pytest.raises(OSError, match="check its format, that it is whole"):
            open_table(path).rows  # noqa: B018
        path.write_bytes(b"a,b\n1,2\n")
        with pytest.raises(OSError, match="check its format, that it is whole"):
            open_table(path)


class TestParquet:
    TABLE = pa.table(
        {
            "age": pa.array([30, None, 41], pa.int8()),
            "sex": pa.array(["male", "female", None]).dictionary_encode(),
            "stage": pa.array([3.0, 2.0, 9.0]),
            "smokes": pa.array([True, False, None]),
            "born": pa.array([0, 1, 2], pa.date32()),
            "cost": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        }
    )

    def test_types_are_in_the_metadata(self, tmp_path):
        parquet.write_table(self.TABLE, tmp_path / "t.parquet")
        table = open_table(tmp_path / "t.parquet")
        assert (table.rows, table.typed) == (3, True)
        kinds = ["number", "category", "number", "category", "ignore", "number"]
        assert table.proposals == dict(zip(self.TABLE.column_names, kinds, strict=True))

    def test_cells(self, tmp_path):
        parquet.write_table(self.TABLE, tmp_path / "t.parquet")
        X, y = encoded(tmp_path / "t.parquet")
        nan = np.nan
        np.testing.assert_array_equal(X, [[30, 1, 0, 0, 1], [nan, 0, 0, 1, 0], [41, nan, nan, nan, nan]])
        np.testing.assert_array_equal(y, [1, 2, 3])

    def test_a_type_that_holds_no_numbers_or_texts_is_refused_by_name(self, tmp_path):
        parquet.write_table(self.TABLE, tmp_path / "t.parquet")
        with pytest.raises(ValueError, match="column 'born' has type date32"):
            list(open_table(tmp_path / "t.parquet").blocks(["born"]))

    def test_a_damaged_file_is_said(self, tmp_path):
        (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
        with pytest.raises(OSError, match="check its format, that it is whole"):
            open_table(tmp_path / "t.parquet")


def test_other_files_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"t\.xlsx: give a table whose name ends in \.csv"):
        open_table(tmp_path / "t.xlsx")


class TestCells:
    def test_numbers_are_what_python_says_or_missing(self):
        texts = ["1", " 2.5 ", "-3e2", "+4", ".5", "6.", "1e400", "-1e400", "1e-400", "inf", "-Infinity", "nan", "NaN"]
        texts += ["", " ", "abc", "1,5", "0x10", "1 2", "--1", "e5", "1e", "$3", "½", "1e999999999"]
        found = numbers(pa.array([text.encode() for text in texts] + [b"\xff", None]))
        for text, value in zip(texts, found, strict=False):
            expected = float(text) if _is_number(text) else np.nan
            assert value == expected or (np.isnan(value) and np.isnan(expected)), text
        assert np.isnan(found[-2:]).all()
        assert numbers(pa.array(["1,5", "2"]), ",").tolist() == [1.5, 2.0]

    def test_clean_and_dirty_columns_give_the_same_numbers(self):
        texts = [repr(value) for value in np.random.default_rng(0).standard_cauchy(1000).tolist()]
        dirty = numbers(pa.array([*texts, "?"]))
        assert dirty[:-1].tobytes() == numbers(pa.array(texts)).tobytes()
        assert dirty[:-1].tolist() == [float(text) for text in texts]

    def test_categories_of_texts_numbers_and_booleans(self):
        nan = np.nan
        cells = pa.array([b"male", b" female ", b"Male", b"", b"\xff", None])
        np.testing.assert_array_equal(places(cells, ("female", "male")), [1, 0, nan, nan, nan, nan])
        np.testing.assert_array_equal(places(pa.array([b"2", b"1.0", b"x", b"4"]), (2.0, 1.0)), [0, 1, nan, nan])
        np.testing.assert_array_equal(places(pa.array([2, 1, None]), (2.0, 1.0)), [0, 1, nan])
        np.testing.assert_array_equal(places(pa.array([b"TRUE", b"false", b"1"]), (False, True)), [1, 0, nan])
        np.testing.assert_array_equal(places(pa.array([True, False, None]), (False, True)), [1, 0, nan])
        np.testing.assert_array_equal(places(pa.array([7, 8]), ("7", "9")), [0, nan])

    def test_two_categories_become_one_indicator_and_more_one_each(self, tmp_path):
        rows = "30,female,1,5\n31,male,2,6\n32,other,3,x\n33,,4,\n"
        X, y = encoded(write(tmp_path / "t.csv", "age,sex,stage,cost\n" + rows))
        nan = np.nan
        assert RECIPE.feature_names == ("age", "sex=male", "stage=1", "stage=2", "stage=3")
        np.testing.assert_array_equal(X, [[30, 0, 1, 0, 0], [31, 1, 0, 1, 0], [32, nan, 0, 0, 1], [33] + [nan] * 4])
        np.testing.assert_array_equal(y, [5, 6, nan, nan])

    def test_a_target_of_labels_is_their_place_in_sorted_order(self, tmp_path):
        recipe = Recipe((Column("age"),), Column("sex", CATEGORY, ("male", "female")))
        _, y = encoded(write(tmp_path / "t.csv", "age,sex\n1,male\n2,female\n3,?\n"), recipe)
        assert recipe.classes == ("female", "male")
        np.testing.assert_array_equal(y, [1, 0, np.nan])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


class TestSource:
    def test_a_fit_sees_the_rows_in_order_for_any_blocks(self, tmp_path, monkeypatch):
        lines = [f"{i},{('female', 'male', '?')[i % 3]},{i % 4},{i / 7}" for i in range(200)]
        path = write(tmp_path / "t.csv", "age,sex,stage,cost\n" + "\n".join(lines))
        X, y = encoded(path)
        for size in (30, 1000, 2**22):
            monkeypatch.setattr(csv, "BLOCK_BYTES", size)
            source = training_rows(open_table(path), RECIPE)
            assert (source.n, source.names, source.target) == (200, RECIPE.feature_names, "cost")
            parts = list(source.read(16, True))
            assert max(len(target) for _, target in parts) <= 16
            read = np.concatenate([np.column_stack(features) for features, _ in parts])
            np.testing.assert_array_equal(read, X)
            np.testing.assert_array_equal(np.concatenate([target for _, target in parts]), y)

    def test_a_csv_that_is_not_kept_is_parsed_once(self, tmp_path, monkeypatch):
        lines = [f"{i},{('female', 'male', '?')[i % 3]},{i % 4},{i / 7}" for i in range(200)]
        path = write(tmp_path / "t.csv", "age,sex,stage,cost\n" + "\n".join(lines))
        X, y = encoded(path)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        source = training_rows(open_table(path), RECIPE, memory=0)
        passes = source.read(16, True)
        next(passes)
        passes.close()  # not to its end: nothing is kept
        for size in (16, 7, 1000):
            parts = list(source.read(size, True))
            assert max(len(target) for _, target in parts) <= size
            np.testing.assert_array_equal(np.concatenate([np.column_stack(features) for features, _ in parts]), X)
            np.testing.assert_array_equal(np.concatenate([target for _, target in parts]), y)
            monkeypatch.setattr(csv.CsvFile, "blocks", lambda *_: pytest.fail("parsed again"))
        single = [features[0] for features, _ in source.select(["stage=2"]).read(1000, False)]
        np.testing.assert_array_equal(np.concatenate(single), X[:, 3])
        assert [found.name for found in tmp_path.iterdir()] == ["t.csv"]  # the scratch file has no name

    def test_progress_hears_of_every_pass_and_row(self, tmp_path):
        heard = []
        path = write(tmp_path / "t.csv", "age,sex,stage,cost\n" + "1,male,2,3\n" * 10)
        source = training_rows(open_table(path), RECIPE, progress=heard.append)
        for _ in range(2):
            list(source.read(4, True))
        assert heard == [0, 4, 4, 2] * 2


class TestSchema:
    def test_toml_and_json_mean_the_same(self, tmp_path):
        toml = tmp_path / "s.toml"
        toml.write_text(
            'tailguard_schema = 1\n[csv]\ndelimiter = ";"\n[columns]\nage = "number"\nvisits = "count"\n'
            'sex = ["female", "male"]\nid = "ignore"\n'
        )
        schema = TableSchema.read(toml)
        (tmp_path / "s.json").write_text(json.dumps(schema.to_dict()))
        assert TableSchema.read(tmp_path / "s.json") == schema
        assert schema.csv == CsvFormat(";")
        assert schema.columns["sex"] == SEX

    @pytest.mark.parametrize("as_json", [False, True])
    def test_a_template_has_every_name_and_is_a_schema_when_filled_in(self, as_json):
        kinds = {"age": "number", 'a "b"\\ü\x7f\t': "number", "notes": "ignore"}
        text = template(kinds, CsvFormat(";"), types=False, as_json=as_json)
        data = json.loads(text) if as_json else tomllib.loads(text)
        schema = TableSchema.from_dict(data)
        assert {name: column.kind for name, column in schema.columns.items()} == kinds
        blank = template({"sex": "category"}, None, types=True, as_json=as_json)
        with pytest.raises(ValueError, match="'sex' lists 0 categories"):
            TableSchema.from_dict(json.loads(blank) if as_json else tomllib.loads(blank))

    def test_a_template_does_not_depend_on_the_rows(self, tmp_path):
        first = open_table(write(tmp_path / "a.csv", "age,sex\n1,male\n"))
        second = open_table(write(tmp_path / "b.csv", "age,sex\nx,999\n,,,\n"))
        assert template(first.proposals, first.csv, types=False) == template(second.proposals, second.csv, types=False)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no line  tailguard_schema = 1"),
            ("tailguard_schema = 2", "must be 1; got 2 .from a newer"),
            ("tailguard_schema = true", "must be 1"),
            ("tailguard_schema = 1\nrows = 3", "'rows' is not a part"),
            ("tailguard_schema = 1\n[csv]\nquote = 'x'", "csv must hold"),
            ("tailguard_schema = 1\n[csv]\ndelimiter = 'ab'", "delimiter must be one character"),
            ("tailguard_schema = 1\n[csv]\ndecimal = 'x'", "decimal must be one of"),
            ("tailguard_schema = 1\n[csv]\ndecimal = ','", "decimal must differ"),
            ("tailguard_schema = 1\n[columns]\na = 'text'", "got 'text'"),
            ("tailguard_schema = 1\n[columns]\na = 'category'", "or the list of its public categories"),
            ("tailguard_schema = 1\n[columns]\na = 3", "or the list of its public categories"),
            ("tailguard_schema = 1\n[columns]\na = ['x']", "at least two"),
            ("tailguard_schema = 1\n[columns]\na = ['x', 1]", "all texts, all numbers or all"),
            ("tailguard_schema = 1\n[columns]\na = ['x', ' x ']", "lists a category twice"),
            ("tailguard_schema = 1\n[columns]\na = ['x', '']", "must be a text"),
            ("tailguard_schema = 1\n[columns]\na = [1, nan]", r"below 2\*\*53"),
            ("tailguard_schema = [", "not valid TOML"),
        ],
    )
    def test_what_is_no_schema_is_said_in_one_sentence(self, tmp_path, text, words):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(ValueError, match=words) as caught:
            TableSchema.read(tmp_path / "s.toml")
        assert str(caught.value).startswith("s.toml")

    def test_deep_nesting_is_no_crash(self, tmp_path):
        (tmp_path / "s.json").write_text("[" * 100_000)
        with pytest.raises(ValueError, match=r"s\.json"):
            TableSchema.read(tmp_path / "s.json")

    def test_columns_are_chosen_by_name(self):
        schema = TableSchema.of([Column("id", "ignore"), Column("age"), SEX, Column("cost")])
        assert choose(schema, "cost").columns == ("age", "sex")
        assert choose(schema, "cost", ["sex"]).columns == ("sex",)
        assert choose(schema, "cost", None, ["age"]).columns == ("sex",)
        with pytest.raises(ValueError, match="no column 'Age'; did you mean 'age'"):
            choose(schema, "cost", ["Age"])
        with pytest.raises(ValueError, match="'id' is declared as \"ignore\""):
            choose(schema, "cost", ["id"])
        with pytest.raises(ValueError, match="at least one feature"):
            choose(schema, "cost", [])
        with pytest.raises(ValueError, match="different columns"):
            choose(schema, "cost", ["cost"])
        with pytest.raises(ValueError, match="two features would have one name"):
            Recipe((SEX, Column("sex=male")), Column("cost"))

    def test_a_recipe_survives_json(self):
        assert Recipe.from_dict(json.loads(json.dumps(RECIPE.to_dict()))) == RECIPE


class TestWriting:
    @pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet"])
    def test_blocks_become_one_file(self, tmp_path, name):
        with RowWriter(tmp_path / name) as writer:
            for values in ([1.5, 2.0], [3.0]):
                writer.write({"a, b": np.array(values), "label": ['x"y'] * len(values)})
            assert not (tmp_path / name).exists()
        assert writer.rows == 3
        if name.endswith("parquet"):
            found = parquet.read_table(tmp_path / name).to_pydict()
        else:
            found = pa.csv.read_csv(tmp_path / name).to_pydict()
        assert found == {"a, b": [1.5, 2.0, 3.0], "label": ['x"y'] * 3}
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_texts_are_quoted_only_where_they_must_be(self, tmp_path):
        with RowWriter(tmp_path / "p.csv") as writer:
            writer.write({"id": ["007", None], "prediction": [1.5, 2.0]})
            writer.write({"id": ["a,b", ""], "prediction": [3.0, 4.0]})
        assert (tmp_path / "p.csv").read_text() == 'id,prediction\n007,1.5\n,2\n"a,b",3\n"",4\n'

    def test_kept_cells_are_as_they_were_but_for_bytes_that_are_no_text(self, tmp_path):
        table = open_table(write(tmp_path / "t.csv", b"id,x\n\xc3\xa9,1\n007,2\n\xff,3\n,4\n5\n"))
        (block,) = table.blocks(["id"])
        assert kept_cells(block, "id").to_pylist() == ["é", "007", "\ufffd", None, None]
        assert kept_cells(block.slice(0, 2), "id").to_pylist() == ["é", "007"]

    def test_a_failure_leaves_no_file(self, tmp_path):
        with pytest.raises(pa.ArrowInvalid), RowWriter(tmp_path / "p.csv") as writer:
            writer.write({"a": [1], "b": [1, 2]})
        assert not list(tmp_path.iterdir())
