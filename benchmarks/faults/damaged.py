"""Files damaged at random: loading one raises an error of the library, or returns the original model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from faults import models
from faults.models import KINDS, OWN_ERRORS
from faults.trial import HELD, Case, Check, Trial, describe_error

# Kinds of damage: each function returns the damaged `content` of a file, and draws positions and sizes with `random`


def flip(random: Random, content: bytearray) -> bytearray:
    """Flip one or several bits."""
    for _ in range(random.choice((1, 1, 1, 2, 10))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return content


def flip_in_header(random: Random, content: bytearray) -> bytearray:
    """Flip one bit in the first 3,000 bytes, which contain the header."""
    content[random.randrange(min(len(content), 3000))] ^= 1 << random.randrange(8)
    return content


def cut(random: Random, content: bytearray) -> bytearray:
    """Remove the end."""
    return content[: random.randrange(len(content))]


def cut_out(random: Random, content: bytearray) -> bytearray:
    """Remove a block."""
    first, end = _block(random, content)
    return content[:first] + content[end:]


def zero(random: Random, content: bytearray) -> bytearray:
    """Overwrite a block with zeros, as after a crash before the disk was synchronised."""
    first, end = _block(random, content)
    content[first:end] = bytes(end - first)
    return content


def double(random: Random, content: bytearray) -> bytearray:
    """Repeat a block."""
    first, end = _block(random, content)
    return content[:end] + content[first:]


def swap(random: Random, content: bytearray) -> bytearray:
    """Swap two blocks."""
    size = random.choice((1, 4, 16, 512))
    a, b = (random.randrange(max(1, len(content) - size)) for _ in range(2))
    content[a : a + size], content[b : b + size] = content[b : b + size], content[a : a + size]
    return content


def append(random: Random, content: bytearray) -> bytearray:
    """Append random bytes, zeros, or a copy of the file."""
    return content + random.choice((random.randbytes(random.randrange(1, 600)), bytes(8), content))


DAMAGES: tuple[Callable[[Random, bytearray], bytearray], ...] = (
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
    """Return the first position of a random block, and the one after its last."""
    first = random.randrange(len(content))
    return first, min(len(content), first + random.choice((1, 8, 64, 512, 4096)))


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield each kind of damage to each kind of file in turn, endlessly, drawn with `seed`; `folder` is not used."""
    number = 0
    while True:
        for damage in range(len(DAMAGES)):
            for kind in KINDS:
                yield Case(f"{kind}: {DAMAGES[damage].__name__}, number {number}", (kind, damage, f"{seed} {number}"))
                number += 1


def start(folder: Path, scratch: Path) -> Check:
    """Load the original files from `folder`, and return a check of damaged copies, which are written to `scratch`."""
    contents = {name: (folder / name).read_bytes() for name in KINDS}
    original = {name: models.state(folder / name, kind.load(folder / name), kind) for name, kind in KINDS.items()}
    path = scratch / "damaged"

    def check(case: tuple[str, int, str]) -> str:
        name, damage, seed = case
        kind = KINDS[name]
        path.write_bytes(DAMAGES[damage](Random(seed), bytearray(contents[name])))
        try:
            state = models.state(path, kind.load(path), kind)
        except OWN_ERRORS:
            return HELD
        except Exception as error:
            return describe_error(error)
        return HELD if models.same(state, original[name]) else "read as something else"

    return check


TRIAL = Trial(
    "damaged",
    "a damaged file is refused with a clear error, or loads exactly as the undamaged original",
    size=10_000,
    quick=240,
    cases=cases,
    start=start,
    prepare=models.prepare,
)
