"""Model files: the same bits after a round trip, and a sentence for whatever else is in a file."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

import tailguard as tg
from tailguard import model_file
from tailguard.model_file import ModelFileError, from_document, read_model, save_model, to_document
from tailguard.model_file.layout import checksum
from tailguard.tables import CATEGORY, Column, Recipe

rng = np.random.default_rng(0)
X = rng.standard_t(2.5, size=(2000, 3)) * [1.0, 100.0, 1e-3]
Y = X @ [1.0, 0.02, 300.0] + rng.normal(size=2000)
ODD = np.vstack([X, [[np.nan, np.inf, -1e38], [0.0, -np.inf, 1e38]]])
BALL = tg.constraints.L2Ball(5.0)

MODELS = {
    "ridge": (tg.PrivateRidge(), Y),
    "ridge, float32": (tg.PrivateRidge(), Y),
    "huber, a named method": (tg.PrivateHuberRegressor(method="clipped", clip=3.0), Y),
    "ball": (tg.PrivateRidge(method="aggregate", constraint=BALL), Y),
    "box": (tg.PrivateRidge(method="clipped", clip=1.0, constraint=tg.constraints.Box([-1.0] * 3, [1.0] * 3)), Y),
    "not private, from a generator": (
        tg.PrivateRidge(method="robust", scale=10.0, random_state=np.random.default_rng(0)),
        Y,
    ),
    "a budget, no intercept": (tg.PrivateRidge(tg.Budget(rho=0.5), fit_intercept=False), Y),
    "two texts": (tg.PrivateLogisticRegression(classes=["no", "yes"]), np.where(Y > 0, "yes", "no")),
    "four integers": (tg.PrivateLogisticRegression(), np.digitize(Y, [-1.0, 0.0, 1.0])),
    "booleans": (tg.PrivateLogisticRegression(), Y > 0),
    "fractions": (tg.PrivateLogisticRegression(classes=[0.25, 0.5]), np.where(Y > 0, 0.25, 0.5)),
    "counts, seeded": (tg.PrivatePoissonRegressor(random_state=3), np.exp(np.clip(Y, -3, 3))),
}


def fitted(name):
    model, y = MODELS[name]
    return copy.deepcopy(model).fit(X.astype(np.float32) if "float32" in name else X, y)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_after_a_round_trip_are_the_same_bits(name, tmp_path):
    model = fitted(name)
    save_model(model, tmp_path / "model.json")
    again = tg.load_model(tmp_path / "model.json")
    assert type(again) is type(model)
    for rows in (ODD, ODD.astype(np.float32), ODD[:1]):
        assert again.predict(rows).tobytes() == model.predict(rows).tobytes()
        if hasattr(model, "predict_proba"):
            assert again.predict_proba(rows).tobytes() == model.predict_proba(rows).tobytes()
    assert again.privacy_ == model.privacy_
    assert again.n_features_in_ == 3
    for parameter in ("epsilon", "delta", "method", "clip", "fit_intercept"):
        assert again.get_params()[parameter] == model.get_params()[parameter]
    json.loads((tmp_path / "model.json").read_text(), parse_constant=pytest.fail)


def test_names_and_recipe_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    model = tg.PrivateRidge().fit(pandas.DataFrame(X, columns=["a", "b", "c=2"]), Y)
    recipe = Recipe((Column("a"), Column("b"), Column("c", CATEGORY, ("1", "2"))), Column("y"))
    save_model(model, tmp_path / "model.json", recipe=recipe)
    saved = read_model(tmp_path / "model.json")
    assert saved.recipe == recipe
    assert saved.model.feature_names_in_.tolist() == ["a", "b", "c=2"]
    assert saved.software["tailguard"] == tg.__version__
    with pytest.raises(ValueError, match="recipe has 1 features but the model has 3"):
        save_model(model, tmp_path / "other.json", recipe=Recipe((Column("a"),), Column("y")))


def test_what_cannot_be_saved_is_said(tmp_path):
    with pytest.raises(TypeError, match="model of type dict cannot be saved"):
        save_model({}, tmp_path / "model.json")
    with pytest.raises(TypeError, match="give its best_estimator_"):
        save_model(tg.PrivateGridSearch(tg.PrivateRidge(), {}), tmp_path / "model.json")
    for model in (tg.PrivateRidge(), tg.PrivateScaler()):
        with pytest.raises(ValueError, match="not fitted"):
            save_model(model, tmp_path / "model.json")
    assert not list(tmp_path.iterdir())


def test_a_scaler_is_kept_to_the_last_bit(tmp_path):
    pandas = pytest.importorskip("pandas")
    hints = tg.Hints(ranges={"a": (0.0, 5.0)})
    scaler = tg.PrivateScaler(0.5, hints=hints, threads=1).fit(pandas.DataFrame(X, columns=list("abc")))
    save_model(scaler, tmp_path / "scaler.json")
    again = tg.load_model(tmp_path / "scaler.json")
    odd = pandas.DataFrame(ODD, columns=list("abc"))
    assert again.transform(odd).tobytes() == scaler.transform(odd).tobytes()
    assert list(again.get_feature_names_out()) == list("abc")
    assert again.privacy_ == scaler.privacy_
    assert again.get_params() == scaler.get_params() | {"threads": None}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("scale", [1.0, 0.0, 1.0], "scale is not positive"),
        ("scale", [1.0, 1.0], "scale has 2 numbers in place of 3"),
        ("mean", "here", "mean is not a list"),
        ("lower", [1e9] * 3, "lower is above upper"),
        ("feature_names", ["a"], "feature_names"),
        ("coef", [1.0] * 3, "fitted does not hold exactly"),
    ],
)
def test_a_forged_scaler_is_refused_by_name(name, value, words):
    document = to_document(tg.PrivateScaler().fit(X))
    document["fitted"][name] = value
    with pytest.raises(ModelFileError, match=words):
        from_document(signed(document))


def test_a_scaler_predicts_from_no_table():
    scaler, recipe = tg.PrivateScaler().fit(X), Recipe((Column("a"), Column("b"), Column("c")), Column("y"))
    with pytest.raises(ValueError, match="recipe is not accepted for a scaler"):
        to_document(scaler, recipe)
    with pytest.raises(ModelFileError, match="does not have the features"):
        from_document(signed(to_document(scaler) | {"table": recipe.to_dict()}))


def signed(document):
    content = {key: value for key, value in document.items() if key != "checksum"}
    return content | {"checksum": checksum(content)}


def test_the_column_of_persons_is_kept_and_checked():
    recipe = Recipe((Column("a"), Column("b"), Column("c")), Column("y"), persons="patient")
    document = to_document(fitted("ridge"), recipe)
    assert from_document(document).recipe == recipe
    for wrong in (7, "", None, "x" * 2000):
        with pytest.raises(ModelFileError, match="name of a column"):
            from_document(signed(document | {"table": document["table"] | {"persons": wrong}}))


def test_a_file_says_nothing_beyond_what_was_released():
    """Two tables with the same noise-free release would have the same file: there is no digest, path or time in it."""
    document = to_document(fitted("counts, seeded"))
    assert set(document) == {
        "format", "version", "created", "software", "estimator", "parameters", "fitted", "privacy", "table", "checksum",
    }  # fmt: skip
    assert len(document["created"]) == len("2026-01-01")
    assert "threads" not in document["parameters"]
    assert to_document(fitted("counts, seeded")) == document


def test_the_module_has_no_way_to_run_what_it_reads():
    files = sorted(Path(model_file.__file__).parent.glob("*.py"))
    assert len(files) > 3
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not imported & {"pickle", "marshal", "shelve", "joblib", "runpy", "subprocess", "ctypes"}
    assert not called & {"eval", "exec", "compile", "__import__", "import_module"}


# ---------------------------------------------------------------- files from elsewhere


def document_of(name="two texts"):
    if name not in _DOCUMENTS:
        recipe = Recipe((Column("a"), Column("b"), Column("c", CATEGORY, ("1", "2"))), Column("y"))
        _DOCUMENTS[name] = to_document(fitted(name), recipe)
    return copy.deepcopy(_DOCUMENTS[name])


_DOCUMENTS: dict = {}


def read(tmp_path, content):
    (tmp_path / "model.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_model(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"format": "tailguard-model", "format": "tailguard-model"}', "not valid JSON"),
        (b'{"format": "tailguard-model", "version": NaN}', "not valid JSON"),
        (b'{"format": "tailguard-model", "version": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[1, 2]", "is not a model file: tailguard fit writes one"),
        (b'{"coef": 1}', "is not a model file"),
        (b'{"format": "tailguard-model"}', "its version is not a number"),
        (b'{"format": "tailguard-model", "version": true}', "its version is not a number"),
        (
            b'{"format": "tailguard-model", "version": 2}',
            "written by a newer tailguard .file version 2, this one reads 1",
        ),
        (b'{"format": "tailguard-model", "version": 1}', "checksum does not match"),
        (pickle.dumps(print), "not valid JSON"),
    ],
)
def test_what_is_no_model_file_is_said_in_one_sentence(tmp_path, content, words):
    with pytest.raises(ModelFileError, match=words) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith("model.json ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("tailguard.model_file.reading.MAX_BYTES", 100)
    with pytest.raises(ModelFileError, match="larger than"):
        read(tmp_path, document_of())


def test_damage_anywhere_is_found(tmp_path):
    """Cut, or one character changed: an error, unless the change is in white space."""
    whole = json.dumps(document_of(), indent=1).encode()
    chance = random.Random(0)
    for _ in range(150):
        at = chance.randrange(len(whole))
        with pytest.raises(ModelFileError):
            read(tmp_path, whole[:at])
        changed = whole[:at] + bytes([chance.randrange(32, 127)]) + whole[at + 1 :]
        if json.loads(whole) == _loads(changed):
            continue
        with pytest.raises(ModelFileError):
            read(tmp_path, changed)


def _loads(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def paths_of(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths_of(child, (*path, key))


WRONG = [None, True, -1, 1e308, "x", "inf", "nan", [], {}, [[]], ["x"], {"x": 1}, 10**30, "__import__('os')"]


@pytest.mark.parametrize("name", ["two texts", "ridge", "ball", "a budget, no intercept"])
def test_a_forged_field_is_refused_or_harmless(name):
    """Every field in turn becomes something else, with a checksum to match: a model that can predict, or one error."""
    original = document_of(name)
    chance = random.Random(1)
    refused = 0
    paths = list(paths_of(original))[1:]
    for path in chance.sample(paths, min(150, len(paths))):
        for wrong in chance.sample(WRONG, 3):
            forged = copy.deepcopy(original)
            place = forged
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
            forged.pop("checksum", None)
            forged["checksum"] = checksum(forged)
            try:
                model = from_document(forged).model
            except ModelFileError:
                refused += 1
            else:
                model.predict(ODD[-20:])
                assert model.privacy_.guarantee
    assert refused > 100


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("estimator",), "RandomForest", "estimator is none of"),
        (("estimator",), "METHODS", "estimator is none of"),
        (("parameters", "os"), "rm", "parameters are not those of"),
        (("parameters", "constraint"), {"constraint": "eval", "fields": {}}, "the field 'eval'"),
        (("fitted", "coef"), [[1.0, 2.0]], "lower has 3 numbers in place of 2"),
        (("fitted", "coef"), [[1.0, 2.0, "nan"]], "coef holds something that is not a number"),
        (("fitted", "lower"), [2.0, 2.0, 2.0], "lower is above upper"),
        (("fitted", "classes"), {"kind": "text", "values": ["a", "a"]}, "classes repeat a label"),
        (("fitted", "extra"), 1, "fitted does not hold exactly"),
        (("privacy", "epsilon"), 0.1, "smaller epsilon than its events cost"),
        (("privacy", "relation"), "none", "relation must be one of"),
        (("privacy", "reasons"), ["seeded"], "promises what it also denies"),
        (("privacy", "events"), [{"event": "Free"}], "event must be one of"),
        (("table", "features"), [["a", "number"]], "does not have the features of the model"),
    ],
)
def test_what_is_wrong_is_named(path, value, words):
    forged = document_of()
    place = forged
    for key in path[:-1]:
        place = place[key]
    if path == ("fitted", "lower"):
        forged["fitted"]["upper"] = [1.0, 1.0, 1.0]
    place[path[-1]] = value
    del forged["checksum"]
    forged["checksum"] = checksum(forged)
    with pytest.raises(ModelFileError, match=words):
        from_document(forged)


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    model = fitted("ridge")
    save_model(model, tmp_path / "model.json")
    before = (tmp_path / "model.json").read_bytes()

    def stop(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", stop)
    with pytest.raises(OSError, match="full"):
        save_model(fitted("ridge"), tmp_path / "model.json")
    assert (tmp_path / "model.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
