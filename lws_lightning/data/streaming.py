"""Images in memory, or read from disk for each batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Images", "StreamedImages", "read_images"]


class StreamedImages:
    """Images that are read on demand, with the interface of a `(N, C, H, W)` uint8 tensor.

    Indexing selects images without reading them, so that subsets and splits work as with a tensor.

    Args:
        files: The argument of `decode` for each image.
        decode: Returns an image `(C, H, W)` uint8 as a pure function of the file; must be picklable for loader
            processes.
        image_shape: `(C, H, W)`.
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(self, files: Sequence[str], decode: Callable[[str], Tensor], image_shape: Sequence[int]) -> None:
        self.files = list(files)
        self.decode = decode
        self.image_shape = tuple(image_shape)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> torch.Size:
        """`(N, C, H, W)`."""
        return torch.Size((len(self), *self.image_shape))

    def __getitem__(self, index: slice | Tensor) -> "StreamedImages":
        files = self.files[index] if isinstance(index, slice) else [self.files[i] for i in index.tolist()]
        return StreamedImages(files, self.decode, self.image_shape)

    def read(self) -> Tensor:
        """Reads all images, `(N, C, H, W)` uint8.

        Raises:
            RuntimeError: An image cannot be read, or has the wrong shape; names the file.
        """
        images = torch.empty(self.shape, dtype=torch.uint8)
        for image, file in zip(images, self.files, strict=True):
            try:
                decoded = self.decode(file)
            except Exception as error:
                raise RuntimeError(f"{file}: the image cannot be read: {error}") from error
            if decoded.shape != image.shape:
                raise RuntimeError(f"{file}: an image of shape {tuple(decoded.shape)} instead of {self.image_shape}.")
            image.copy_(decoded)
        return images


Images = Tensor | StreamedImages
"""`(N, C, H, W)` uint8 images, in memory or read on demand."""


def read_images(images: Images, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Returns images in memory or on disk as a tensor.

    Args:
        images: `(N, C, H, W)` uint8.
        index: `(n,)` int64 in `[0, N)`. None: all images, not copied if in memory.
        out: Output for the indexed images, `(n, C, H, W)` uint8.

    Raises:
        RuntimeError: An image on disk cannot be read; names the file.
    """
    if isinstance(images, StreamedImages):
        read = (images if index is None else images[index]).read()
        return read if out is None else out.copy_(read)
    return images if index is None else torch.index_select(images, 0, index, out=out)
