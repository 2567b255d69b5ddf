"""Finds tasks, classes and images by the names of folders and files; nothing is opened."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lws_lightning.data.file_names import is_image, is_passed_over, kinds_of

__all__ = ["LAYOUT", "TaskFolder", "scan_tasks"]

LAYOUT = (
    "ROOT/<task>/<class>/*.png, or with test images of their own ROOT/<task>/train/<class>/*.png and "
    "ROOT/<task>/test/<class>/*.png (jpg, webp, bmp, tif, ... alike)"
)

_PARTS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}


@dataclass
class TaskFolder:
    """What lies in the folder of one task.

    Attributes:
        name: The folder's name.
        folder: The folder.
        class_names: The names of the classes, sorted; class c is number c.
        parts: "train", and where the task has such folders "test" and "validation" -> for each class the paths of its
            images, sorted by name; a class may have none outside "train".
        problems: What makes the task unusable, as sentences that name the folder and say what to do.
        strangers: Files that are no images by their names.
    """

    name: str
    folder: Path
    class_names: tuple[str, ...] = ()
    parts: dict[str, list[list[str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def files(self) -> list[str]:
        """Returns the paths of all images, part by part and class by class."""
        return [file for classes in self.parts.values() for files in classes for file in files]

    def digest(self) -> str:
        """Returns a hash of the names below the folder, the same wherever the folder lies."""
        digest = hashlib.blake2b(digest_size=8)
        for file in self.files():
            digest.update(os.fsencode(os.path.relpath(file, self.folder)) + b"\0")
        return digest.hexdigest()


def scan_tasks(root: Path, option: str) -> list[TaskFolder]:
    """Finds the tasks below a folder, by the names of what lies there.

    Args:
        root: The folder.
        option: The option that names it, for messages.

    Returns:
        The tasks, sorted by name. One that cannot be used says why in `problems`.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There are no tasks in it, or it is laid out as a single task.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root} ({option}). Expected is {LAYOUT}.")
    folders, files = _listing(root)
    if not folders:
        found = f"only files, such as {files[0].name!r}" if files else "nothing"
        raise ValueError(f"{root} ({option}) holds {found}, but no folders of tasks. Expected is {LAYOUT}.")
    names = {folder.name for folder in folders}
    if len(names) > 1 and names <= _PARTS.keys():
        raise ValueError(
            f"The folders in {root} ({option}) are named {', '.join(sorted(names))}, as if it were a single task. "
            f"Expected is {LAYOUT}; give the folder above, or put these folders into one for the task."
        )
    return [_scan_task(folder) for folder in folders]


def _scan_task(folder: Path) -> TaskFolder:
    task = TaskFolder(folder.name, folder)
    if _undecodable(folder.name):
        task.problems.append(f"{folder!r}: its name is not valid text; rename it.")
    folders, files = _listing(folder)
    images = [file for file in files if is_image(file.name)]
    task.strangers += [str(file) for file in files if not is_image(file.name)]
    if images:
        task.problems.append(
            f"{folder}: {_count(len(images), 'image')} outside of the class folders, such as {images[0].name!r}; "
            "put each image into the folder of its class."
        )
    # A class may be called "train" too; then images lie in it, and no folders.
    divided = any(each.name == "train" and _listing(each)[0] for each in folders)
    if not divided:
        task.class_names, task.parts["train"] = _scan_classes(task, folder, folders)
    else:
        _scan_parts(task, folders)
    if not task.class_names and not images:
        task.problems.append(f"{folder}: there are no class folders in it; expected is {LAYOUT}.")
    elif len(task.class_names) == 1:
        task.problems.append(
            f"{folder}: there is one class only, {task.class_names[0]!r}; a task needs at least two. Add a class, or "
            "leave the task out with --data.tasks."
        )
    empty = [name for name, files in zip(task.class_names, task.parts.get("train", []), strict=True) if not files]
    if empty:
        place = folder / "train" if divided else folder
        others = [file for file in task.strangers if Path(file).parent in [place / name for name in empty]]
        task.problems.append(
            f"{place}: no images in the class folder{'s' * (len(empty) > 1)} {_names(empty)}; put images there, or "
            f"remove the folder.{f' There, {kinds_of(others)}.' if others else ''}"
        )
    return task


def _scan_parts(task: TaskFolder, folders: Sequence[Path]) -> None:
    """Fills in a task that has a folder `train` of class folders, and others beside it."""
    others = [each.name for each in folders if each.name not in _PARTS]
    if others:
        task.problems.append(
            f"{task.folder}: beside the folder 'train' there are {_names(others)}; only test and val(idation) may be "
            "there. Move the others elsewhere."
        )
    found: dict[str, tuple[tuple[str, ...], list[list[str]]]] = {}
    for folder in (each for each in folders if each.name in _PARTS):
        part = _PARTS[folder.name]
        inside, files = _listing(folder)
        task.strangers += [str(file) for file in files if not is_image(file.name)]
        if any(is_image(file.name) for file in files):
            task.problems.append(f"{folder}: images outside of the class folders; put each into that of its class.")
        if part in found:
            task.problems.append(f"{task.folder}: there is more than one folder of validation images; keep one.")
        found[part] = _scan_classes(task, folder, inside)
    task.class_names, task.parts["train"] = found.pop("train")
    for part, (names, files_of) in found.items():
        unknown = [name for name in names if name not in task.class_names]
        if unknown:
            task.problems.append(
                f"{task.folder}: {part} has the classes {_names(unknown)}, of which train has no folder; give them "
                "training images, or remove them."
            )
        by_name = dict(zip(names, files_of, strict=True))
        task.parts[part] = [by_name.get(name, []) for name in task.class_names]


def _scan_classes(task: TaskFolder, folder: Path, classes: Sequence[Path]) -> tuple[tuple[str, ...], list[list[str]]]:
    files_of = []
    for each in classes:
        if _undecodable(each.name):
            task.problems.append(f"{each!r}: its name is not valid text; rename it.")
        folders, files = _listing(each)
        if folders:
            task.problems.append(
                f"{each}: there are folders in it, such as {folders[0].name!r}, where images are expected. Expected is "
                f"{LAYOUT}."
            )
        files_of.append([str(file) for file in files if is_image(file.name)])
        task.strangers += [str(file) for file in files if not is_image(file.name)]
    return tuple(each.name for each in classes), files_of


def _listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """Returns the folders and the files in a folder that a user means to be there, sorted by name."""
    folders: list[Path] = []
    files: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_passed_over(entry.name):
                continue
            (folders if entry.is_dir() else files).append(folder / entry.name)
    return folders, files


def _undecodable(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
