"""INTERIM codelets for those of kernels."""

from __future__ import annotations

import numpy as np

from nxjax.kernels.ipu.spec import Attribute, Codelet, Field


class _C(Codelet):
    def __init__(self, key, fields, attrs):
        self.key, self._f, self._a = key, fields, attrs

    name = property(lambda self: repr(self.key))
    fields = property(lambda self: self._f)
    attributes = property(lambda self: tuple(Attribute(a, "int") for a in self._a))
    source = ";"

    def cycles(self, sizes, attributes, chip):
        return 100


KINDS = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


class Reduce(_C):
    """x [outer, depth, inner] -> y [outer, inner]"""

    def __init__(self, kind, dtype, out):
        super().__init__(
            ("reduce", kind, dtype, out), (Field("x", "in", dtype), Field("y", "out", out)), ("outer", "inner")
        )

    def meaning(self, arrays, attributes):
        x = arrays["x"]
        n, o, i = len(x), attributes["outer"], attributes["inner"]
        x = x.reshape(n, o, -1, i)
        y = KINDS[self.key[1]].reduce(x, axis=2, dtype=self.key[3])
        return {"y": y.reshape(arrays["y"].shape)}


class Take(_C):
    """table [groups, rows, width], index [groups, count] -> y [groups, count, width]; outside: value `fill` bits 0."""

    def __init__(self, dtype):
        super().__init__(
            ("take", dtype),
            (Field("table", "in", dtype), Field("index", "in", "int32"), Field("y", "out", dtype)),
            ("groups", "rows", "first"),
        )

    def meaning(self, arrays, attributes):
        g, rows = attributes["groups"], attributes["rows"]
        t = arrays["table"]
        n = len(t)
        t = t.reshape(n, g, rows, -1)
        index = arrays["index"].reshape(n, g, -1) - np.asarray(attributes["first"]).reshape(-1, 1, 1)
        ok = (index >= 0) & (index < rows)
        y = np.take_along_axis(t, np.where(ok, index, 0)[..., None], 2)
        y = np.where(ok[..., None], y, np.zeros((), y.dtype))
        return {"y": y.reshape(arrays["y"].shape)}


class Put(_C):
    """table [groups, rows, width] inout, index [groups, count], updates [groups, count, width], in order."""

    def __init__(self, kind, dtype):
        super().__init__(
            ("put", kind, dtype),
            (Field("table", "inout", dtype), Field("index", "in", "int32"), Field("updates", "in", dtype)),
            ("groups", "rows", "first"),
        )

    def meaning(self, arrays, attributes):
        g, rows = attributes["groups"], attributes["rows"]
        t = arrays["table"].copy()
        n = len(t)
        v = t.reshape(n, g, rows, -1)
        index = arrays["index"].reshape(n, g, -1) - np.asarray(attributes["first"]).reshape(-1, 1, 1)
        u = arrays["updates"].reshape(n, g, index.shape[2], -1)
        a, c = np.meshgrid(np.arange(n), np.arange(g), indexing="ij")
        for k in range(index.shape[2]):
            at = index[:, :, k]
            ok = (at >= 0) & (at < rows)
            p = (a[ok], c[ok], at[ok])
            v[p] = (
                u[:, :, k][ok]
                if self.key[1] == "set"
                else (np.subtract if self.key[1] == "sub" else KINDS[self.key[1]])(v[p], u[:, :, k][ok])
            )
        return {"table": t}
