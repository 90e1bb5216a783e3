"""Files damaged at random: refused by an error of the library, or read as if they were whole."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from faults import models
from faults.models import KINDS, OWN_ERRORS
from faults.trial import HELD, Case, Judge, Trial, in_words


def flip(random: Random, content: bytearray) -> bytearray:
    """Turn some bits round."""
    for _ in range(random.choice((1, 1, 1, 2, 10))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content


def flip_in_header(random: Random, content: bytearray) -> bytearray:
    """Turn one bit round where files are read first."""
    content[random.randrange(min(len(content), 3000))] ^= 1 << random.randrange(8)
    return content


def cut(random: Random, content: bytearray) -> bytearray:
    """End early."""
    return content[: random.randrange(len(content))]


def cut_out(random: Random, content: bytearray) -> bytearray:
    """Lose a block."""
    begin, end = _block(random, content)
    return content[:begin] + content[end:]


def zero(random: Random, content: bytearray) -> bytearray:
    """A block of zeros, as a disk that was not synced leaves it."""
    begin, end = _block(random, content)
    content[begin:end] = bytes(end - begin)
    return content


def double(random: Random, content: bytearray) -> bytearray:
    """A block twice."""
    begin, end = _block(random, content)
    return content[:end] + content[begin:]


def swap(random: Random, content: bytearray) -> bytearray:
    """Two blocks in each other's place."""
    size = random.choice((1, 4, 16, 512))
    a, b = (random.randrange(max(1, len(content) - size)) for _ in range(2))
    content[a : a + size], content[b : b + size] = content[b : b + size], content[a : a + size]
    return content


def append(random: Random, content: bytearray) -> bytearray:
    """Bytes after the end."""
    return content + random.choice((random.randbytes(random.randrange(1, 600)), bytes(8), content))


WAYS: tuple[Callable[[Random, bytearray], bytearray], ...] = (
    flip,
    flip_in_header,
    cut,
    cut_out,
    zero,
    double,
    swap,
    append,
)


def _block(random: Random, content: bytearray) -> tuple[int, int]:
    begin = random.randrange(len(content))
    return begin, min(len(content), begin + random.choice((1, 8, 64, 512, 4096)))


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Each kind of file and each way in turn, at random places."""
    number = 0
    while True:
        for way in range(len(WAYS)):
            for kind in KINDS:
                yield Case(f"{kind}: {WAYS[way].__name__}, number {number}", (kind, way, f"{seed} {number}"))
                number += 1


def start(folder: Path, own: Path) -> Judge:
    """Read the whole files, then judge damaged copies of them."""
    contents = {name: (folder / name).read_bytes() for name in KINDS}
    whole = {name: models.state(folder / name, kind.load(folder / name), kind) for name, kind in KINDS.items()}
    path = own / "damaged"

    def judge(case: tuple[str, int, str]) -> str:
        name, way, seed = case
        kind = KINDS[name]
        path.write_bytes(WAYS[way](Random(seed), bytearray(contents[name])))
        try:
            found = models.state(path, kind.load(path), kind)
        except OWN_ERRORS:
            return HELD
        except Exception as error:
            return in_words(error)
        return HELD if models.same(found, whole[name]) else "read as something else"

    return judge


TRIAL = Trial(
    "damaged",
    "a damaged file is refused with a clear error, or nothing of it was lost",
    size=10_000,
    quick=240,
    cases=cases,
    start=start,
    prepare=models.prepare,
)
