"""Images in memory, or on disk until a batch needs them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Images", "StreamedImages", "read_images"]


class StreamedImages:
    """Images that are read whenever they are needed; stands where a `(N, C, H, W)` uint8 tensor would.

    Indexing selects images without reading any, so that subsets and splits are made as with a tensor.

    Args:
        files: What `decode` is called with, one for each image.
        decode: Returns an image `(C, H, W)` uint8, the same for the same file whenever it is called. Loader processes
            need their own copy, so it must be possible to pickle it.
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
            RuntimeError: An image cannot be read, or has another shape than declared; names the file.
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
"""`(N, C, H, W)` uint8 images, in memory or read when they are needed."""


def read_images(images: Images, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Returns images as a tensor, wherever they are.

    Args:
        images: `(N, C, H, W)` uint8.
        index: `(n,)` int64 in `[0, N)`. None: all images, without a copy of those in memory.
        out: Where to write the indexed images, `(n, C, H, W)` uint8.

    Raises:
        RuntimeError: An image on disk cannot be read; names the file.
    """
    if isinstance(images, StreamedImages):
        read = (images if index is None else images[index]).read()
        return read if out is None else out.copy_(read)
    return images if index is None else torch.index_select(images, 0, index, out=out)
