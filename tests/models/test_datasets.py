"""Image files in every format, intact and damaged; the regression data; checksums of the published files, if present."""

from __future__ import annotations

import gzip
import hashlib
import struct
import warnings

import numpy as np
import pytest

import refhmc
from tests.helpers.places import ROOT, SHARED

PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4 + 19  # ends at 255
LABELS = np.array([3, 0, 9, 1, 1], np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def folder(place, suffix: str = "", between: str = "-", pack=lambda content: content):
    for stem, rows in (("train", slice(None)), ("t10k", slice(2))):
        (place / f"{stem}-images{between}idx3-ubyte{suffix}").write_bytes(pack(idx(PIXELS[rows])))
        (place / f"{stem}-labels{between}idx1-ubyte{suffix}").write_bytes(pack(idx(LABELS[rows])))
    return place


def npz(place):
    path = place / "images.npz"
    np.savez_compressed(path, x_train=PIXELS, y_train=LABELS, x_test=PIXELS[:2], y_test=LABELS[:2].astype(np.int32))
    return path


FORMS = {
    "idx": folder,
    "idx with a dot": lambda place: folder(place, between="."),
    "idx.gz": lambda place: folder(place, ".gz", pack=gzip.compress),
    "npz": npz,
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_all_file_formats_give_the_same_images(form, tmp_path):
    path = FORMS[form](tmp_path)
    X, y, names = refhmc.datasets.mnist(path)
    assert X.dtype == np.float64
    assert np.array_equal(X, PIXELS / 255)
    assert X.max() == 1.0
    assert y.dtype == np.int64
    assert y.tolist() == LABELS.tolist()
    assert names == tuple("0123456789")
    test = refhmc.datasets.fashion_mnist(str(path), "test", dtype=np.float32)
    assert test.X.dtype == np.float32
    assert np.array_equal(test.X, PIXELS[:2].astype(np.float32) / np.float32(255))
    assert test.names[9] == "ankle boot"
    some = refhmc.datasets.mnist(path, rows=[4, 2])
    assert np.array_equal(some.X, X[[4, 2]])
    assert some.y.tolist() == [1, 9]


def test_pair_of_files_and_a_model_of_its_images(tmp_path):
    folder(tmp_path)
    pair = [tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"]
    X, y, names = refhmc.datasets.mnist(pair)
    assert np.array_equal(X, PIXELS / 255)
    model = refhmc.models.CNN(X, y, channels=[2], dense=[], side=2, n_classes=len(names))
    assert np.isfinite(model.log_density(np.zeros(model.dim)))


def damaged(place, name: str, change):
    path = folder(place) / name
    path.write_bytes(change(path.read_bytes()))
    return place


IMAGES_FILE, LABELS_FILE = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda d: damaged(d, IMAGES_FILE, lambda b: b[:-1]), ValueError, r"59 bytes.*\(5, 4, 3\).* 60"),
        (lambda d: damaged(d, IMAGES_FILE, lambda b: b + b"x"), ValueError, "61 bytes"),
        (lambda d: damaged(d, IMAGES_FILE, lambda b: b[:9]), ValueError, "9 bytes.* 16"),
        (lambda d: damaged(d, IMAGES_FILE, lambda b: b""), ValueError, "idx file"),
        (lambda d: damaged(d, LABELS_FILE, lambda b: idx(PIXELS)), ValueError, "00 00 08 01.*00 00 08 03"),
        (lambda d: damaged(d, LABELS_FILE, lambda b: b"\0\0\x0d\1" + b[4:]), ValueError, "00 00 0d 01"),
        (lambda d: damaged(d, LABELS_FILE, lambda b: idx(LABELS[:4])), ValueError, r"\(5, 4, 3\) and \(4,\)"),
        (lambda d: damaged(d, LABELS_FILE, lambda b: idx(LABELS + 1)), ValueError, "(?i)labels.* 9.* got 1 to 10"),
        (lambda d: damaged(d, IMAGES_FILE, lambda b: gzip.compress(b)[:-12]), ValueError, "damaged"),
        (lambda d: damaged(d, IMAGES_FILE, lambda b: gzip.compress(b)[:30] + b"?" * 40), ValueError, "damaged"),
        (lambda d: d, FileNotFoundError, "train-images-idx3-ubyte or train-images-idx3-ubyte.gz"),
        (lambda d: d / "nowhere.npz", FileNotFoundError, "nowhere.npz"),
        (lambda d: [d / "a", d / "b", d / "c"], ValueError, "two idx files"),
    ],
)  # fmt: skip
def test_damaged_files_are_named(make, error, words, tmp_path):
    with pytest.raises(error, match=words):
        refhmc.datasets.mnist(make(tmp_path))


def test_damaged_npz_files_are_named(tmp_path):
    path = npz(tmp_path)
    content = path.read_bytes()
    for broken in (content[:-30], content[:200], b"", content[:60] + b"\0" * 60 + content[120:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"images\.npz.*(npz file|damaged)"):
            refhmc.datasets.mnist(path)
    np.savez(path, x_train=PIXELS)
    with pytest.raises(ValueError, match="y_train"):
        refhmc.datasets.mnist(path)
    np.savez(path, x_train=PIXELS / 255, y_train=LABELS)
    with pytest.raises(ValueError, match="(?i)pixels.* got float64"):
        refhmc.datasets.mnist(path)
    np.savez(path, x_train=np.array([{}], dtype=object), y_train=LABELS)
    with pytest.raises(ValueError, match="npz file"):
        refhmc.datasets.mnist(path)
    np.save(tmp_path / "one.npy", PIXELS)
    with pytest.raises(ValueError, match="npz file"):
        refhmc.datasets.mnist(tmp_path / "one.npy")
    whole = path.read_bytes()
    compression = whole.index(b"PK\x01\x02") + 10  # of the first array, in the central directory
    path.write_bytes(whole[:compression] + b"\x63" + whole[compression + 1 :])
    with pytest.raises(ValueError, match="That compression method is not supported"):
        refhmc.datasets.mnist(path)
    with pytest.raises(ValueError, match="subset.*'train'.*'test'.* got 'validation'"):
        refhmc.datasets.mnist(path, "validation")


def test_regression_data():
    """The file is the published one, with 400 points, standardised by the population standard deviation."""
    content = (ROOT / "refhmc" / "data" / "subspace1d_400.csv").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "2281a2e0f1532dea1b82ebbd9992ce29f20c17ac8a3a918a345e1ca8ef344da0"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X, y, _ = refhmc.datasets.regression_1d()
    assert not caught  # a file that was not closed
    rows = [[float(each) for each in line.split(b",")] for line in content.splitlines()[1:]]
    assert X.shape == (400, 1)
    assert y.shape == (400,)
    for column, got in enumerate((X[:, 0], y)):
        values = [row[column] for row in rows]
        mean = sum(values) / 400
        sd = (sum((value - mean) ** 2 for value in values) / 400) ** 0.5
        np.testing.assert_allclose(got, [(value - mean) / sd for value in values], rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ones"), [("mnist", [1135, 1032]), ("fashion_mnist", [1000, 1000])])
def test_published_files(name, ones):
    path = SHARED / "data" / name / f"{name}.npz"
    if not path.exists():
        pytest.skip("the shared images are not here")
    X, y, _ = getattr(refhmc.datasets, name)(path, "test", dtype=np.float32)
    assert X.shape == (10000, 28, 28)
    assert (X.min(), X.max()) == (0, 1)
    assert np.bincount(y)[1:3].tolist() == ones
