r"""Model files: a fitted model as JSON, which a program can check and a person can read.

A file holds numbers, texts and lists, no code and nothing that could be run: loading one from a stranger can fail, with
a sentence, but can do nothing else. Every field is checked before it is used, unknown fields are refused, sizes are
limited, and a checksum tells a damaged or edited file from a whole one. (It is no signature: whoever can write the
file can write a checksum.)

=============  ===========================================================================================
field          what
=============  ===========================================================================================
format         "tailguard-model"
version        of this layout; a file with a higher one is refused by name
created        the day
software       versions of what fitted the model
estimator      one of the four classes of `tailguard.linear_model`, or ``PrivateScaler``
parameters     its constructor's arguments; ``threads`` and generators are left out
fitted         coefficients, intercept, truncation, replacements of missing values, classes, names; standard errors;
               of a scaler centre, scale, truncation and names
privacy        the report, as `PrivacyReport.to_dict`
table          the recipe of `tailguard.tables.schema` that makes rows of a file into features, or null
checksum       SHA-256 of all the above
=============  ===========================================================================================

All of it was released by the fit or is public. Nothing about the rows is added: no path of the file, no digest of it,
no time that it took. Floats are written with the shortest digits that give back the same bits, so predictions of a
loaded model are those of the saved one, bit by bit.
"""

from tailguard.model_file.layout import ModelFileError, SavedModel
from tailguard.model_file.reading import from_document, load_model, read_model
from tailguard.model_file.writing import save_model, software, to_document, write_whole

__all__ = [
    "ModelFileError",
    "SavedModel",
    "from_document",
    "load_model",
    "read_model",
    "save_model",
    "software",
    "to_document",
    "write_whole",
]
