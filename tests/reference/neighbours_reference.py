#!/usr/bin/env python3
"""Neighbours of `mso data index --embed`: the side file read by this script alone, against brute force in numpy; and how
often the nearest is of the right category on the sample data, the category being hidden from the search.

usage: MSO_BUILD=build neighbours_reference.py     (needs numpy and the stamps of tuxpaint)
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

import numpy

STAMPS = pathlib.Path("/usr/share/tuxpaint/stamps")
THRESHOLD = 0.92
RIGHT = 0.927
MEDIA, TEXT, HEALTHY = 1, 2, 4


def fail(message):
    sys.exit(f"neighbours_reference: {message}")


class SideFile:
    """The layout of io/neighbour_file.cc, version 1."""

    def __init__(self, path):
        data = path.read_bytes()
        magic, version, width, size, rows, media, text, kept, _, about, _, _, _ = struct.unpack_from("<8sIIQQIIIIQQQQ", data)
        if (magic, version, size) != (b"MSONEIGH", 1, len(data)):
            fail(f"{path} is not what it should be: {magic} {version} {size}")
        aligned = lambda at: (at + 63) // 64 * 64
        self.about = json.loads(data[80:80 + about])
        at = aligned(aligned(80 + about) + (rows + 4095) // 4096 * 16)
        self.categories = numpy.frombuffer(data, "<u4", rows, at)
        at = aligned(at + rows * 4)
        self.states = numpy.frombuffer(data, "u1", rows, at)
        at = aligned(at + rows)
        self.neighbours = numpy.frombuffer(data, "<u4", rows * kept, at).reshape(rows, kept)
        at = aligned(at + rows * kept * 4)
        self.similarities = numpy.frombuffer(data, "<f4", rows * kept, at).reshape(rows, kept)
        at = aligned(at + rows * kept * 4)
        self.embeddings = numpy.frombuffer(data, "<f2" if width == 2 else "<f4", rows * (media + text), at)
        self.embeddings = self.embeddings.reshape(rows, media + text).astype(numpy.float64)
        self.media, self.rows, self.kept = media, rows, kept
        self.names = numpy.array([self.about["categories"][c] for c in self.categories])

    def similarity(self, parts):
        """Cosines of all pairs over the given parts alone."""
        part = {MEDIA | TEXT: slice(None), MEDIA: slice(0, self.media), TEXT: slice(self.media, None)}[parts]
        vectors = self.embeddings[:, part]
        norms = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        unit = numpy.divide(vectors, norms, out=numpy.zeros_like(vectors), where=norms > 0)
        return unit @ unit.T


def check_against_brute_force(file, hidden, what):
    parts, kinds, healthy = file.states & 3, file.states >> 4, (file.states & HEALTHY) != 0
    by_parts = {p: file.similarity(p) for p in (MEDIA | TEXT, MEDIA, TEXT) if (parts == p).any()}
    for row in range(file.rows):
        may = healthy & (kinds == kinds[row])
        if not hidden:
            may &= file.categories == file.categories[row]
        may[row] = False
        if parts[row] == 0:
            may[:] = False
        candidates = numpy.flatnonzero(may)
        count = min(file.kept, len(candidates))
        found = file.neighbours[row]
        if (found[count:] != 0xffffffff).any() or (found[:count] == 0xffffffff).any() or len(set(found[:count])) != count:
            fail(f"{what}: row {row} has not {count} neighbours: {found}")
        if count == 0:
            continue
        right = by_parts[parts[row]][row]
        if not may[found[:count]].all():
            fail(f"{what}: row {row} has a neighbour of another category or kind, or a broken one")
        best = numpy.sort(right[candidates])[::-1][:count]
        for told in (file.similarities[row, :count], right[found[:count]]):
            if numpy.abs(told - best).max() > 2e-6:
                fail(f"{what}: row {row} has not the nearest: {told} instead of {best}")
    print(f"{what}: the neighbours of {file.rows} samples equal brute force")


def measure(file, right_names, similarity, queries, what, few=False):
    """Each of `queries` in turn is the broken one; its nearest healthy neighbour anywhere replaces it."""
    similarity = similarity.copy()
    numpy.fill_diagonal(similarity, -2)
    similarity[:, (file.states & HEALTHY) == 0] = -2
    nearest = similarity.argmax(1)
    made = [row for row in queries if numpy.float32(similarity[row, nearest[row]]) >= numpy.float32(THRESHOLD)]
    right = sum(right_names[row] == right_names[nearest[row]] for row in made)
    share = right / max(1, len(made))
    print(f"{what}: {right} of {len(made)} replacements are of the right category ({share:.1%}); "
          f"{1 - len(made) / len(queries):.1%} of the samples are skipped")
    if few:  # one or two make several per cent: only to be looked at
        return
    if len(made) < len(queries) / 4:
        fail(f"{what}: next to nothing is replaced")
    if share < RIGHT:
        fail(f"{what}: {share:.1%} are of the right category, {RIGHT:.1%} are wanted")


def main():
    if not any(STAMPS.glob("*/*.png")):
        print("the stamps of tuxpaint are not installed")
        sys.exit(77)
    mso = os.environ.get("MSO", os.environ.get("MSO_BUILD", "build") + "/mso")
    run = lambda *arguments: subprocess.run([mso, "data", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        shards = work / "shards"
        run("pack", STAMPS, shards, "--max-samples-per-shard", 200)
        run("index", "--embed", shards)
        file = SideFile(shards / "neighbours.mso")
        check_against_brute_force(file, False, "sample data")
        names = file.names  # top folders

        # What the index stores when the category is hidden, and what a caption alone would find.
        run("index", "--embed", "--hide-category", "--float32", shards)
        hidden = SideFile(shards / "neighbours.mso")
        check_against_brute_force(hidden, True, "sample data, category hidden, float32")
        everything = range(hidden.rows)
        measure(hidden, names, hidden.similarity(MEDIA | TEXT), everything, "stored embedding intact")
        measure(hidden, names, hidden.similarity(TEXT), everything, "caption alone intact")

        # Every twentieth picture was broken before the index was made.
        shutil.copytree(shards, work / "damaged")
        number = 0
        for tar in sorted((work / "damaged").glob("*.tar")):
            with tarfile.open(tar) as archive:
                pictures = [m for m in archive if m.name.endswith(".jpg")]
            with open(tar, "r+b") as archive:
                for member in pictures:
                    number += 1
                    if number % 20 == 7:
                        archive.seek(member.offset_data + member.size // 2)
                        archive.write(bytes(member.size - member.size // 2))
        for stale in (work / "damaged").glob("*.idx"):
            stale.unlink()
        run("index", "--embed", work / "damaged")
        damaged = SideFile(work / "damaged/neighbours.mso")
        broken = numpy.flatnonzero((damaged.states & HEALTHY) == 0)
        if len(broken) != number // 20 + (number % 20 >= 7) or (damaged.states[broken] & 3 != TEXT).any():
            fail(f"{len(broken)} of {number} pictures are known to be broken")
        check_against_brute_force(damaged, False, "damaged data")
        measure(damaged, names, damaged.similarity(TEXT), broken, "broken before the index was made", few=True)


if __name__ == "__main__":
    main()
