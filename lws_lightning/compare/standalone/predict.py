"""Classifies images with one of the networks in models/: python predict.py models/TASK.onnx IMAGE...

Needs only onnxruntime and Pillow (pip install onnxruntime pillow). The file of the network says how to prepare an image
and what the classes are called.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def prepared(path: str, how: dict[str, object], shape: list[int]) -> np.ndarray:
    """Reads an image as in training: (1, C, H, W), float32 from 0 to 1."""
    channels, size = shape[0], (shape[2], shape[1])  # Pillow's order
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray(np.round(np.asarray(image).astype(np.float64) / 257).astype(np.uint8))
    grey = int(str(how.get("background", 255)))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (grey, grey, grey, 255)), image)
    image = image.convert("RGB" if channels == 3 else "L")
    resampling = Image.Resampling.BOX if how.get("interpolation") == "area" else Image.Resampling.BILINEAR
    if image.size != size:
        if how.get("mode") == "crop":
            image = ImageOps.fit(image, size, resampling)
        elif how.get("mode") == "pad":
            image = ImageOps.pad(image, size, resampling, color=grey if channels == 1 else (grey, grey, grey))
        else:
            image = image.resize(size, resampling)
    pixels = np.asarray(image, np.float32).reshape(shape[1], shape[2], channels) / 255
    return pixels.transpose(2, 0, 1)[None]


def main(model: str, *images: str) -> None:
    """Prints the likeliest class of each image."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["metadata"])
    for path in images:
        pixels = prepared(path, about["preprocessing"] or {}, about["input"]["shape"][1:])
        logits = session.run(["logits"], {"images": pixels})[0][0]
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        best = int(probabilities.argmax())
        name = about["class_names"][best] if about["class_names"] else best
        print(f"{path}: {name} ({100 * probabilities[best]:.0f} %)")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: python predict.py models/TASK.onnx IMAGE...")
    main(*sys.argv[1:])
