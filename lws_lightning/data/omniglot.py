"""Omniglot as fifty tasks, one for each alphabet (the paper, section "Omniglot")."""

from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import Tensor

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.cache import ArrayCache
from lws_lightning.data.download import DataFiles, files_error, require_files
from lws_lightning.data.image_decoding import Decoder
from lws_lightning.data.image_reading import read_folders
from lws_lightning.data.tasks import Examples, TaskData
from lws_lightning.randomness import generator_for

__all__ = ["Omniglot"]

_FOLDER = "omniglot-py"
_DRAWINGS = 20
_SIZE = 105
# Alphabet -> its number of characters, in the authors' two parts.
_BACKGROUND = {
    "Alphabet_of_the_Magi": 20,
    "Anglo-Saxon_Futhorc": 29,
    "Arcadian": 26,
    "Armenian": 41,
    "Asomtavruli_(Georgian)": 40,
    "Balinese": 24,
    "Bengali": 46,
    "Blackfoot_(Canadian_Aboriginal_Syllabics)": 14,
    "Braille": 26,
    "Burmese_(Myanmar)": 34,
    "Cyrillic": 33,
    "Early_Aramaic": 22,
    "Futurama": 26,
    "Grantha": 43,
    "Greek": 24,
    "Gujarati": 48,
    "Hebrew": 22,
    "Inuktitut_(Canadian_Aboriginal_Syllabics)": 16,
    "Japanese_(hiragana)": 52,
    "Japanese_(katakana)": 47,
    "Korean": 40,
    "Latin": 26,
    "Malay_(Jawi_-_Arabic)": 40,
    "Mkhedruli_(Georgian)": 41,
    "N_Ko": 33,
    "Ojibwe_(Canadian_Aboriginal_Syllabics)": 14,
    "Sanskrit": 42,
    "Syriac_(Estrangelo)": 23,
    "Tagalog": 17,
    "Tifinagh": 55,
}
_EVALUATION = {
    "Angelic": 20,
    "Atemayar_Qelisayer": 26,
    "Atlantean": 26,
    "Aurek-Besh": 26,
    "Avesta": 26,
    "Ge_ez": 26,
    "Glagolitic": 45,
    "Gurmukhi": 45,
    "Kannada": 41,
    "Keble": 26,
    "Malayalam": 47,
    "Manipuri": 40,
    "Mongolian": 30,
    "Old_Church_Slavonic_(Cyrillic)": 45,
    "Oriya": 46,
    "Sylheti": 28,
    "Syriac_(Serto)": 23,
    "Tengwar": 25,
    "Tibetan": 42,
    "ULOG": 26,
}


class Omniglot(MultiTaskDataModule):
    """Fifty tasks of black and white images, 105x105 pixels: classify the characters of one alphabet.

    | part | alphabets | characters | drawings of each |
    | --- | --- | --- | --- |
    | background | 30 | 964 (14 to 55 an alphabet) | 20 |
    | evaluation | 20 | 659 (20 to 47 an alphabet) | 20 |

    The tasks are named after the alphabets' folders: those of the background part in alphabetical order, then
    those of the evaluation part. A character's number is its label plus one.

    Of the 20 drawings of each character, `train_drawings` are training images and the others test images,
    drawn by `split_seed`, the alphabet and the character. (The paper says "a random 80/20 split"; its
    authors' program uses 16 and 4 of each character, as here.) All are used, so `validation: unused` is
    impossible.

    Images are as in the files and in torchvision: ink is 0, paper 255.

    The files are located under `root` as torchvision unpacks them:
    `omniglot-py/images_{background,evaluation}/<alphabet>/character<number>/*.png`. Only those of the chosen
    tasks are needed. Complete files are never written to, so `root` may be read-only. The decoded images, a
    few megabytes, are cached in `cache_dir` until the files change.

    MIT licence, copyright 2015 Brenden Lake.
    Lake, Salakhutdinov and Tenenbaum: Human-level concept learning through probabilistic program induction.
    Science 350, 2015.

    Args:
        root: Folder that holds `omniglot-py`.
        train_drawings: Training images of each character, 1 to 19.
        image_size: Height and width of the images, 1 to 105 (the files'). Smaller ones are averages over areas.
        download: Download missing files (two archives of 16 MB together; 32,460 files).
        cache_dir: Folder of the decoded images. None: `$XDG_CACHE_HOME/lws_lightning`, or
            `~/.cache/lws_lightning`.
        **options: Those of `MultiTaskDataModule`.

    Raises:
        ValueError: An option is out of range.
        FileNotFoundError: In `setup`, if a file is missing or damaged; names the alphabets.
        RuntimeError: In `prepare_data`, if the download fails.
    """

    neutral_options = MultiTaskDataModule.neutral_options | {"download", "cache_dir"}
    class_counts: Mapping[str, int] = _BACKGROUND | _EVALUATION
    image_size = (1, _SIZE, _SIZE)  # replaced by that of the option

    def __init__(
        self,
        root: str = "data",
        train_drawings: int = 16,
        image_size: int = _SIZE,
        download: bool = False,
        cache_dir: str | None = None,
        **options: Any,
    ) -> None:
        self.image_size = (1, image_size, image_size)
        super().__init__(root=root, **options)
        if not 1 <= image_size <= _SIZE:
            raise ValueError(f"{self.dataset_name}: image_size must lie between 1 and {_SIZE}, got {image_size}.")
        if not 1 <= train_drawings < _DRAWINGS:
            raise ValueError(
                f"{self.dataset_name}: train_drawings must lie between 1 and {_DRAWINGS - 1}, got {train_drawings}."
            )
        if self.validation == "unused":
            raise ValueError(
                f"{self.dataset_name}: validation: unused is impossible, since every drawing is a training or a "
                "test image; use validation: split."
            )
        self.train_drawings = train_drawings
        self.download = download
        self.cache_dir = cache_dir

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How to convert a drawing to the network's input, as numbers, strings and lists."""
        return super().preprocessing | Decoder(self.image_size[1:], 1, "stretch", 255, "area").describe()

    def prepare_data(self) -> None:
        """Downloads missing files if `download` is set. Lightning calls this in one process only."""
        if self.download:
            for files in self._files():
                files.download()

    def load_tasks(self) -> list[TaskData]:
        """Reads the chosen tasks, from the cache if possible.

        Raises:
            FileNotFoundError: A file is missing or damaged.
        """
        sources = self._files()
        require_files(self.dataset_name, sources)
        folders = {Path(name).name: source.root / name for source in sources for name in source.names}
        drawings = {folders[name]: _drawings(folders[name]) for name in self.task_names}
        cache = ArrayCache(self.cache_dir, self.dataset_name)
        variant = "drawings" if self.image_size == Omniglot.image_size else f"drawings-{self.image_size[1]}"
        decode = partial(_decode, size=self.image_size[1])
        read = deque(read_folders(self.dataset_name, drawings, decode, self.image_size, variant, True, cache))
        damaged = [
            f"  {files[index]}: damaged ({reason})"
            for files, images in zip(drawings.values(), read, strict=True)
            for index, reason in images.broken.items()
        ]
        if damaged:
            raise files_error(self.dataset_name, damaged)
        # popleft, so that only one task at a time has its images in memory twice
        return [self._split_drawings(name, read.popleft().pixels) for name in self.task_names]

    def _split_drawings(self, name: str, images: Tensor) -> TaskData:
        """Splits an alphabet's `(characters * 20, 1, H, W)` images, ordered by character and drawer."""
        characters = _characters(name)
        orders = [
            torch.randperm(_DRAWINGS, generator=generator_for(self.split_seed, "drawings", name, character))
            for character in characters
        ]
        labels = torch.arange(len(characters)).unsqueeze(1)
        indices = torch.stack(orders) + _DRAWINGS * labels
        everything = Examples(images, labels.expand_as(indices).flatten())
        train = everything.select(indices[:, : self.train_drawings].flatten())
        test = everything.select(indices[:, self.train_drawings :].flatten())
        return TaskData(name, train, test, class_names=characters)

    def _files(self) -> list[DataFiles]:
        """Returns the files of the chosen alphabets, for each part with any of them."""
        root = self.root_path / _FOLDER
        sources = []
        for part, alphabets in (("images_background", _BACKGROUND), ("images_evaluation", _EVALUATION)):
            names = [f"{part}/{name}" for name in self.task_names if name in alphabets]
            url = f"{torchvision.datasets.Omniglot.download_url_prefix}/{part}.zip"
            fetch = partial(_fetch, root=root, part=part, names=names)
            if names:
                sources.append(DataFiles(self.dataset_name, url, root, names, _problem, fetch))
        return sources


def _characters(alphabet: str) -> tuple[str, ...]:
    return tuple(f"character{number:02d}" for number in range(1, Omniglot.class_counts[alphabet] + 1))


def _drawings(folder: Path) -> list[str]:
    """Returns the drawings of all characters, sorted by character and name, which ends in the drawer's number."""
    files = (sorted((folder / character).glob("[!.]*.png")) for character in _characters(folder.name))
    return [str(file) for of_character in files for file in of_character]


def _decode(file: str, size: int) -> Tensor:
    """Returns a drawing, `(1, size, size)` uint8, as `Omniglot.preprocessing` describes it."""
    with Image.open(file) as image:
        if image.size != (_SIZE, _SIZE):
            raise ValueError(f"{image.size[::-1]} instead of {(_SIZE, _SIZE)} pixels")
        pixels = np.array(image.convert("L").resize((size, size), Image.Resampling.BOX))
    return torch.from_numpy(pixels).unsqueeze(0)


def _problem(folder: Path) -> str | None:
    """Returns what is wrong with an alphabet's folder, by the names in it, or None."""
    if not folder.is_dir():
        return "missing"
    characters = _characters(folder.name)
    extra = {path.name for path in folder.glob("character*")} - set(characters)
    if extra:
        return f"not Omniglot's (with {', '.join(sorted(extra))})"
    counts = Counter(Path(file).parent.name for file in _drawings(folder))
    wrong = [f"{character} has {counts[character]}" for character in characters if counts[character] != _DRAWINGS]
    return f"incomplete (of {_DRAWINGS} drawings {', '.join(wrong)})" if wrong else None


def _fetch(temporary: Path, root: Path, part: str, names: list[str]) -> None:
    """Downloads a part to `temporary`, and moves incomplete folders out of `root`."""
    torchvision.datasets.Omniglot(temporary, background=part == "images_background", download=True)
    (temporary / _FOLDER / part).replace(temporary / part)
    if any(_problem(temporary / name) is not None for name in names):
        return  # `DataFiles.download` raises an error
    for name in names:
        old = root / name
        if old.exists() and _problem(old) is not None:
            old.replace(temporary / f"{name}.old")  # removed with `temporary`
