"""Data that stands in for what public programs would download: of the same form, random, and smaller."""

from __future__ import annotations

import pickle
import random
import string
import struct
from pathlib import Path

import numpy as np

WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not")


def mnist(folder: Path, count: int = 6000) -> None:
    """MNIST's four files of ``count`` images of blurred lines, a sixth of it for tests."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, number in (("train", count), ("t10k", count // 6)):
        generator = np.random.default_rng(number)
        labels = generator.integers(0, 10, number, dtype=np.uint8)
        images = np.zeros((number, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 + label : 8 + label, 4:24] = generator.integers(100, 255, (4, 20))
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, number, 28, 28) + images.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, number) + labels.tobytes())


def images(folder: Path, count: int = 60, size: int = 256, classes: int = 1) -> None:
    """JPEG files, in a folder for each class if there are several."""
    from PIL import Image

    generator = np.random.default_rng(count)
    for number in range(count):
        place = folder / f"class{number % classes}" if classes > 1 else folder
        place.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 255, (size // 16, size // 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((size, size)).save(place / f"{number:05d}.jpg")


def words(folder: Path, count: int = 60_000, vocabulary: int = 2000) -> None:
    """Sentences in ``train.txt``, ``valid.txt`` and ``test.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in (("train", count), ("valid", count // 10), ("test", count // 10)):
        generator = random.Random(number)
        drawn = [f"w{int(generator.paretovariate(0.6)) % vocabulary}" for _ in range(number)]
        lines = [" ".join(drawn[first : first + 20]) for first in range(0, number, 20)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def characters(file: Path, count: int = 300_000) -> None:
    """A text of ordinary words with lines and capitals, and each letter at least once."""
    generator = random.Random(count)
    text, length = [string.ascii_letters + "!,?\n"], 0
    while length < count:
        line = " ".join(generator.choice(WORDS) for _ in range(8)).capitalize() + ".\n"
        text.append(line)
        length += len(line)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(text))


def tokens(folder: Path, count: int = 300_000, vocabulary: int = 65) -> None:
    """Character tokens as nanoGPT prepares them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in (("train", count), ("val", count // 10)):
        generator = np.random.default_rng(number)
        generator.integers(0, vocabulary, number, dtype=np.uint16).tofile(folder / f"{name}.bin")
    letters = [chr(32 + number) for number in range(vocabulary)]
    meta = {"vocab_size": vocabulary, "itos": dict(enumerate(letters)), "stoi": {c: n for n, c in enumerate(letters)}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def citations(folder: Path, papers: int = 2708, features: int = 200) -> None:
    """Cora's two tables: papers with words and a class, and which cites which."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(papers)
    subjects = [f"Subject_{letter}" for letter in "ABCDEFG"]
    rows = generator.random((papers, features)) < 0.05
    lines = [
        "\t".join([str(paper), *map(str, row.astype(int)), subjects[paper % len(subjects)]])
        for paper, row in enumerate(rows)
    ]
    (folder / "cora.content").write_text("\n".join(lines) + "\n")
    links = generator.integers(0, papers, (2 * papers, 2))
    (folder / "cora.cites").write_text("\n".join(f"{a}\t{b}" for a, b in links if a != b) + "\n")


def names(file: Path, count: int = 2000) -> None:
    """A name on each line."""
    generator = random.Random(count)
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = ("".join(generator.choice(letters) for _ in range(generator.randint(3, 12))) for _ in range(count))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def waves(file: Path, count: int = 40, length: int = 500) -> None:
    """Sines of different phases, as an array that ``torch.save`` wrote."""
    import torch

    phases = torch.randint(-80, 80, (count, 1), generator=torch.Generator().manual_seed(2))
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(torch.sin((torch.arange(length) + phases) / 20.0).double().numpy(), file)
