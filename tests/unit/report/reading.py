"""Reads the records of a page as the page does."""

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspn.models import Model


@dataclass
class Reader:
    streams: dict[str, NDArray[Any]]
    at: dict[str, int] = field(default_factory=lambda: {"f4": 0, "u2": 0, "u1": 0})

    @classmethod
    def of(cls, text: str) -> "Reader":
        raw = base64.b64decode(text)
        counts = np.frombuffer(raw, "<u4", 3).tolist()
        streams, start = {}, 12
        for kind, count in zip(("f4", "u2", "u1"), counts, strict=True):
            own = np.dtype(f"<{kind}")
            streams[kind] = np.frombuffer(raw, own, count, start)
            start += count * own.itemsize
        assert start == len(raw)
        return cls(streams)

    def take(self, kind: str, *shape: int) -> NDArray[Any]:
        count, start = int(np.prod(shape)), self.at[kind]
        self.at[kind] += count
        return self.streams[kind][start : start + count].reshape(shape)

    def at_end(self) -> bool:
        return all(self.at[kind] == own.size for kind, own in self.streams.items())


def facts_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    facts: dict[str, Any] = json.loads(found.group(1))
    return facts


def readers_of(page: str) -> list[Reader]:
    found = re.search(r'<script type="text/plain" id="records">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    sizes = np.frombuffer(base64.b64decode(facts_of(page)["sequences"]["size"]), "<u4")
    ends = np.cumsum(sizes)
    return [
        Reader.of(found.group(1)[end - size : end]) for size, end in zip(sizes, ends, strict=True)
    ]


def numbers_of(page: str) -> list[int]:
    packed = facts_of(page)["sequences"]["number"]
    numbers: list[int] = np.frombuffer(base64.b64decode(packed), "<u4").tolist()
    return numbers


@dataclass
class Record:
    slices: NDArray[Any]
    entries: NDArray[Any]
    columns: list[NDArray[Any]]
    shares: NDArray[Any] | None = None
    component: int = -1
    rows: NDArray[Any] | None = None
    probabilities: NDArray[Any] | None = None
    missing: list[NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)
    future: list[NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)


def record_of(reader: Reader, model: Model, length: int, steps: int, *, possible: bool) -> Record:
    schema = model.schema
    slices, entries = reader.take("f4", length), reader.take("f4", length, len(schema))
    columns = []
    for variable in schema:
        if not variable.num_categories:
            columns.append(reader.take("f4", length).astype(float))
            continue
        kind, none = ("u1", 255) if variable.num_categories < 255 else ("u2", 65535)
        codes = reader.take(kind, length).astype(float)
        columns.append(np.where(codes == none, np.nan, codes))
    record = Record(slices, entries, columns)
    if possible:
        record.shares = reader.take("u2", len(model.components)) / 65535
        record.component, count = reader.take("u2", 2).tolist()
        record.rows = reader.take("u2", count, 3)
        record.probabilities = reader.take("u2", length, count) / 65535
        lost = [int(np.isnan(column).sum()) for column in columns]
        for answers, counts in ((record.missing, lost), (record.future, [steps] * len(schema))):
            for variable, number in zip(schema, counts, strict=True):
                width = min(variable.num_categories, 6)
                if width:
                    codes, own = reader.take("u2", number, width), reader.take("u2", number, width)
                    answers.append((codes, own / 65535))
                else:
                    answers.append(reader.take("f4", number, 4))
    assert reader.at_end()
    return record
