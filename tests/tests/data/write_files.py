"""Writes files of every format with the libraries that people use, and what must be read from them.

    python write_files.py FOLDER        writes files to FOLDER, and FOLDER/expected.json
"""

import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import dump_svmlight_file, load_digits, load_iris

folder = Path(sys.argv[1])
cases = []
random = np.random.default_rng(5)

IDX_TYPES = {"u1": 8, "i1": 9, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def floats(array):
    return [float(x) for x in np.asarray(array).astype(np.float32).ravel()]


def labels_of(y, values):
    if y is None:
        return {"kind": None, "y": []}
    if values:
        width = 1 if y.ndim == 1 else int(y.shape[1])
        return {"kind": width, "y": floats(y)}
    return {"kind": "class", "y": [int(label) for label in np.asarray(y).ravel()]}


def case(files, x, y=None, values=False, options=None, element=None, names=None, sparse=None):
    """What files must be read as; and the same files compressed."""
    x = None if x is None else np.asarray(x)
    entry = {
        "options": options or {},
        "labels": labels_of(y, values),
        "names": names,
    }
    if sparse is None:
        small = element or ("u8" if x.dtype in (np.uint8, np.bool_) else "f32")
        entry["dense"] = {"element": small, "shape": list(x.shape[1:]), "count": len(x), "x": floats(x)}
    else:
        matrix, columns = sparse
        entry["sparse"] = {
            "starts": [int(i) for i in matrix.indptr],
            "columns": [int(i) for i in matrix.indices],
            "values": floats(matrix.data),
            "width": columns,
        }
    cases.append({"files": files, **entry})
    packed = []
    for name in files:
        packed.append(name + ".gz")
        with gzip.open(folder / packed[-1], "wb") as out:
            out.write((folder / name).read_bytes())
    cases.append({"files": packed, **entry})


def write_idx(name, array, code):
    header = struct.pack(">BBBB", 0, 0, IDX_TYPES[code], array.ndim)
    header += struct.pack(f">{array.ndim}I", *array.shape)
    (folder / name).write_bytes(header + array.astype(">" + code).tobytes())


def idx():
    classes = random.integers(0, 10, 7)
    write_idx("labels-idx1-ubyte", classes, "u1")
    for code in IDX_TYPES:
        x = (random.normal(0, 40, (7, 3, 4)) if code[0] == "f" else random.integers(0, 100, (7, 3, 4))).astype(code)
        write_idx(f"{code}.idx", x, code)
        case([f"{code}.idx"], x)
        case([f"{code}.idx", "labels-idx1-ubyte"], x, classes)
    negative = random.integers(-128, 127, (7, 2)).astype("i1")
    write_idx("negative.idx", negative, "i1")
    case(["negative.idx"], negative)


def npy():
    for code in ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]:
        for order in "<>":
            x = random.normal(0, 50, (5, 2, 3))
            x = (x > 0) if code == "?" else np.abs(x) if code[0] == "u" else x
            x = x.astype(code if code == "?" else order + code)
            name = f"{code.replace('?', 'bool')}-{'little' if order == '<' else 'big'}.npy"
            np.save(folder / name, x)
            case([name], x)
    x = random.normal(0, 1, (6, 4)).astype("f4")
    for version in [(1, 0), (2, 0), (3, 0)]:
        name = f"version{version[0]}.npy"
        with open(folder / name, "wb") as out:
            np.lib.format.write_array(out, x, version=version)
        case([name], x)
    np.save(folder / "x.npy", x)
    np.save(folder / "one.npy", x[:, 0].copy())
    case(["one.npy"], x[:, 0])
    y = np.array([0, 2, 1, 1, 0, 3])
    two = np.array([-1, 1, 1, -1, 1, -1])
    for code in ["u1", "i4", "i8", "f4", "f8", "u2", ">i4"]:
        name = "y-" + code.replace(">", "big-") + ".npy"
        np.save(folder / name, y.astype(code))
        case(["x.npy", name], x, y)
    np.save(folder / "y-column.npy", y.reshape(6, 1))
    case(["x.npy", "y-column.npy"], x, y)
    np.save(folder / "y-two.npy", two)
    case(["x.npy", "y-two.npy"], x, (two + 1) // 2)
    targets = random.normal(0, 1, (6, 3))
    np.save(folder / "y-values.npy", targets)
    case(["x.npy", "y-values.npy"], x, targets, values=True)
    np.save(folder / "y-value.npy", targets[:, 0].copy())
    case(["x.npy", "y-value.npy"], x, targets[:, 0], values=True)
    case(["x.npy", "y-i8.npy"], x, y, values=True, options={"labels": "values"})
    np.savetxt(folder / "y.csv", y, fmt="%d")
    case(["x.npy", "y.csv"], x, y)
    (folder / "y-names.csv").write_text("b\na\nc\nc\nb\na\n")
    case(["x.npy", "y-names.csv"], x, [1, 0, 2, 2, 1, 0], names=["a", "b", "c"])
    np.savetxt(folder / "y-values.csv", targets.astype("f4"), fmt="%.9g", delimiter=",")
    case(["x.npy", "y-values.csv"], x, targets.astype("f4"), values=True)


def npz():
    x = random.integers(0, 255, (8, 5, 5)).astype("u1")
    test = random.integers(0, 255, (3, 5, 5)).astype("u1")
    y, y_test = random.integers(0, 10, 8), random.integers(0, 10, 3)
    for save, kind in [(np.savez, "stored"), (np.savez_compressed, "deflated")]:
        save(folder / f"one-{kind}.npz", x)
        case([f"one-{kind}.npz"], x)
        for first, second in [("x", "y"), ("X", "y"), ("data", "labels"), ("images", "labels"), ("features", "targets")]:
            name = f"{first}-{second}-{kind}.npz"
            save(folder / name, **{first: x, second: y})
            case([name], x, y)
        save(folder / f"positions-{kind}.npz", x, y)
        case([f"positions-{kind}.npz"], x, y)
        save(folder / f"keras-{kind}.npz", x_train=x, y_train=y, x_test=test, y_test=y_test)
        case([f"keras-{kind}.npz"], x, y, options={"part": "train"})
        case([f"keras-{kind}.npz"], test, y_test, options={"part": "test"})
        save(folder / f"odd-{kind}.npz", pixels=x, kinds=y, more=test)
        case([f"odd-{kind}.npz"], x, y, options={"features": "pixels", "label": "kinds"})
        save(folder / f"float-{kind}.npz", x=x.astype("f8") / 7, y=y.astype("f4"))
        case([f"float-{kind}.npz"], x.astype("f8") / 7, y)


def csv():
    iris = load_iris()
    x, y = iris.data, iris.target
    names = [str(iris.target_names[label]) for label in y]
    rows = np.column_stack([x, y])
    formats = ["%.1f"] * 4 + ["%d"]
    np.savetxt(folder / "iris.csv", rows, fmt=formats, delimiter=",")
    case(["iris.csv"], x, y)
    np.savetxt(folder / "full-precision.csv", np.column_stack([x / 7, y]), delimiter=",")
    case(["full-precision.csv"], x / 7, y)
    np.savetxt(folder / "iris.tsv", rows, fmt=formats, delimiter="\t", header="a\tb\tc\td\tclass", comments="")
    case(["iris.tsv"], x, y)
    case(["iris.tsv"], x, y, options={"column": "class"})
    case(["iris.tsv"], np.delete(rows, 1, axis=1), x[:, 1], values=True, options={"column": "b"})
    case(["iris.tsv"], rows, options={"column": None})
    header = ";".join(f'"{name}"' for name in iris.feature_names)
    lines = [f"{header};species"]
    lines += [";".join(map(str, row)) + f';"{name}"' for row, name in zip(x, names)]
    (folder / "semicolons.csv").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    case(["semicolons.csv"], x, y, names=["setosa", "versicolor", "virginica"])
    lines = ["label,p,q", '"say ""hi"", you", 1 ,2e-3', "\"two\nlines\",-.5,+4", "plain,1e10,-0"]
    (folder / "quoted.csv").write_text("\n".join(lines) + "\n\n")
    case(
        ["quoted.csv"],
        np.array([[1, 2e-3], [-0.5, 4], [1e10, -0.0]]),
        np.array([1, 2, 0]),
        options={"column": 0},
        names=["plain", 'say "hi", you', "two\nlines"],
    )
    (folder / "counted.csv").write_text("0,1,2,3\n5,6,7,1\n7,8,9,0\n")
    case(["counted.csv"], np.array([[5.0, 6.0, 7.0], [7.0, 8.0, 9.0]]), np.array([1, 0]))
    (folder / "bits.csv").write_text("0,1,1\n1,0,0\n")
    case(["bits.csv"], np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 0]))
    np.savetxt(folder / "features.csv", x, delimiter=",")
    np.savetxt(folder / "targets.csv", y, fmt="%d", header="class", comments="")
    case(["features.csv", "targets.csv"], x, y)


def libsvm():
    from scipy.sparse import csr_matrix

    digits = load_digits()
    x = digits.data[:40].copy()
    # So that every column, and the first, is there.
    x[0] = np.arange(64) + 1
    matrix = csr_matrix(x.astype("f4"))
    for zero_based in [False, True]:
        name = f"digits-from-{0 if zero_based else 1}.libsvm"
        dump_svmlight_file(matrix, digits.target[:40], str(folder / name), zero_based=zero_based, comment="some digits")
        case([name], None, digits.target[:40], sparse=(matrix, 64))
    case(["digits-from-1.libsvm"], None, digits.target[:40], options={"columns": 100}, sparse=(matrix, 100))
    two = np.where(digits.target[:40] > 4, 1, -1)
    dump_svmlight_file(matrix, two, str(folder / "two.svm"), zero_based=False)
    case(["two.svm"], None, (two + 1) // 2, sparse=(matrix, 64))
    values = random.normal(0, 1, 40).astype("f4").astype("f8")
    dump_svmlight_file(matrix, values, str(folder / "values.svmlight"), zero_based=False)
    case(["values.svmlight"], None, values, values=True, sparse=(matrix, 64))


def cifar():
    x = random.integers(0, 255, (6, 3, 32, 32)).astype("u1")
    y = random.integers(0, 10, 6)
    rows = np.column_stack([y.astype("u1"), x.reshape(6, -1)])
    (folder / "data_batch_1.bin").write_bytes(rows.tobytes())
    case(["data_batch_1.bin"], x, y)


def tensors():
    y = np.array([3, 1, 2, 0])
    for code in ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]:
        x = random.integers(0, 2, (4, 3, 2)).astype(code)
        name = f"{code.replace('?', 'bool')}.safetensors"
        save_file({"x": x, "y": y, "z": x}, folder / name, metadata={"made": "by numpy"})
        case([name], x, y)
    save_file({"train_images": x, "train_labels": y.astype("f4")}, folder / "parts.safetensors")
    case(["parts.safetensors"], x, y, options={"part": "train"})


for write in [idx, npy, npz, csv, libsvm, cifar, tensors]:
    write()
(folder / "expected.json").write_text(json.dumps(cases))
