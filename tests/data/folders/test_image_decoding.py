"""Image files of every kind become bytes of one size."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps, JpegImagePlugin

from lws_lightning.data import image_decoding
from lws_lightning.data.image_decoding import Decoder, check_size

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOURS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def decoder(size=(6, 8), channels=3, mode="stretch", background=255):
    return Decoder(size, channels, mode, background)


def saved(image, path, **options):
    image.save(path, **options)
    return str(path)


def test_colours_and_grey_are_exact(tmp_path):
    colours = saved(Image.fromarray(COLOURS), tmp_path / "c.png")
    grey = saved(Image.fromarray(GREY), tmp_path / "g.png")
    image = decoder()(colours)
    assert (image.shape, image.dtype) == ((3, 6, 8), torch.uint8)
    assert np.array_equal(image.permute(1, 2, 0), COLOURS)
    assert np.array_equal(decoder(channels=1)(grey)[0], GREY)
    assert np.array_equal(decoder()(grey), np.stack([GREY] * 3))
    expected = COLOURS @ np.array([0.299, 0.587, 0.114])
    assert np.abs(decoder(channels=1)(colours)[0].numpy() - expected).max() <= 1


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_are_scaled_and_not_cut_off(tmp_path, suffix):
    wide = (GREY.astype(np.uint16) * 257).astype(np.uint16)
    path = saved(Image.fromarray(wide), tmp_path / f"w.{suffix}")
    assert np.array_equal(decoder(channels=1)(path)[0], GREY)


def test_wide_values_out_of_range_are_refused(tmp_path):
    assert np.array_equal(
        decoder(channels=1)(saved(Image.fromarray(GREY.astype(np.float32) / 255), tmp_path / "f.tif"))[0], GREY
    )
    for values in (GREY.astype(np.float32), GREY.astype(np.float32) * np.nan, GREY.astype(np.int32) - 1):
        path = saved(Image.fromarray(values), tmp_path / "f.tif")
        with pytest.raises(ValueError, match="grey values"):
            decoder()(path)


@pytest.mark.parametrize("kind", ["RGBA", "LA", "P", "RGB"])
@pytest.mark.parametrize("background", [255, 0])
def test_what_is_transparent_shows_the_background(tmp_path, kind, background):
    image = Image.new("RGBA", (8, 6), (10, 20, 30, 255))
    image.paste((99, 99, 99, 0), (0, 0, 4, 6))
    options = {}
    if kind == "P":
        image, options = (
            Image.fromarray(np.repeat([[0] * 4 + [1] * 4], 6, 0).astype(np.uint8), "P"),
            {"transparency": 0},
        )
        image.putpalette([99, 99, 99, 10, 20, 30])
    elif kind == "RGB":
        image = Image.fromarray(
            np.where(np.arange(8)[None, :, None] < 4, (99, 98, 97), (10, 20, 30)).repeat(6, 0).astype(np.uint8)
        )
        options = {"transparency": (99, 98, 97)}
    else:
        image = image.convert(kind)
    pixels = decoder(background=background)(saved(image, tmp_path / "t.png", **options))
    assert (pixels[:, :, :4] == background).all()
    right = torch.tensor([10, 20, 30]) if kind != "LA" else torch.full((3,), 18)
    assert (pixels[:, :, 4:] - right.view(3, 1, 1)).abs().max() <= 1


def test_cmyk_palette_and_bits(tmp_path):
    black = decoder()(saved(Image.new("CMYK", (8, 6), (0, 0, 0, 255)), tmp_path / "k.jpg"))
    white = decoder()(saved(Image.new("CMYK", (8, 6), (0, 0, 0, 0)), tmp_path / "w.jpg"))
    assert black.max() <= 2
    assert white.min() >= 253
    palette = Image.fromarray(COLOURS).quantize(16)
    assert np.array_equal(decoder()(saved(palette, tmp_path / "p.png")).permute(1, 2, 0), palette.convert("RGB"))
    bits = Image.fromarray(GREY > 100)
    assert set(decoder(channels=1)(saved(bits, tmp_path / "b.png")).unique().tolist()) == {0, 255}


@pytest.mark.parametrize(("orientation", "turned"), [(1, GREY), (3, GREY[::-1, ::-1]), (6, np.rot90(GREY, -1))])
def test_exif_orientation_is_obeyed(tmp_path, orientation, turned):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(Image.fromarray(GREY), tmp_path / "e.png", exif=exif)
    assert np.array_equal(decoder(turned.shape, channels=1)(path)[0], turned)


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("L", (8, 6), value) for value in (10, 200)]
    path = saved(frames[0], tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (decoder()(path) == 10).all()


def test_resize_modes(tmp_path):
    wide = np.full((4, 12), 100, np.uint8)
    wide[:, :4], wide[:, 8:] = 0, 200
    path = saved(Image.fromarray(wide), tmp_path / "w.png")
    crop = decoder((4, 4), 1, "crop")(path)
    assert (crop == 100).all()  # the middle third
    pad = decoder((12, 12), 1, "pad", background=7)(path)[0]
    assert np.array_equal(pad[4:8], wide)
    assert (pad[:4] == 7).all()
    assert (pad[8:] == 7).all()
    stretch = decoder((4, 6), 1, "stretch")(path)[0].float()
    assert torch.allclose(stretch.mean(), torch.tensor(100.0), atol=1)
    assert stretch[0, 0] < 20 < 180 < stretch[0, -1]
    assert decoder((5, 7), 3, "pad")(path).shape == (3, 5, 7)


@pytest.mark.parametrize("size", [0, -3, [4], [4, 0], [4, 4, 3], True])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="image_size"):
        check_size("X", size)


def test_size_is_height_and_width():
    assert check_size("X", 5) == (5, 5)
    assert check_size("X", [4, 6]) == (4, 6)


def exif_block(orientation):
    """Orientation beside other data, of the main directory, the camera's and the satellite's."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x011A] = orientation, "a camera", (72, 1)
    exif.get_ifd(0x8769)[0x829A] = (1, 100)
    exif.get_ifd(0x8825)[2] = (1.0, 2.0, 3.0)
    return exif.tobytes()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_fault_of_exif_data_refuses_an_image(format):
    generator = np.random.default_rng(0)
    whole, image = exif_block(6), Image.fromarray(COLOURS)
    for _ in range(400):
        block = bytearray(whole)
        for place in generator.integers(6, len(block), generator.choice([1, 3, 12])):
            block[place] = generator.integers(256)
        file = io.BytesIO()
        image.save(file, format, exif=bytes(block[: generator.integers(6, 2 * len(block))]))
        assert decoder()(file).shape == (3, 6, 8)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_orientation_is_obeyed_whatever_else_is_broken(tmp_path, orientation):
    block = exif_block(orientation)
    text = block.index(b"a camera")  # a resolution that is text made the whole file unreadable
    kind = block.index(b"\x01\x1a\x00\x05")
    broken = block[:kind] + b"\x01\x1a\x00\x02" + block[kind + 4 : text] + b"\xff" * 8 + block[text + 8 :]
    image = Image.fromarray(COLOURS)
    paths = [saved(image, tmp_path / f"{number}.png", exif=exif) for number, exif in enumerate((block, broken))]
    expected = np.asarray(ImageOps.exif_transpose(Image.open(paths[0])))
    for path in paths:
        assert np.array_equal(decoder(expected.shape[:2])(path).permute(1, 2, 0), expected)


def test_images_above_pillows_limit_are_read_without_a_word(tmp_path, monkeypatch, recwarn):
    path = saved(Image.fromarray(COLOURS), tmp_path / "c.png")
    for limit in (47, 10):  # Pillow would warn, and refuse
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        assert np.array_equal(decoder()(path).permute(1, 2, 0), COLOURS)
        assert limit == Image.MAX_IMAGE_PIXELS
    assert not recwarn.list


def test_a_huge_jpeg_is_made_smaller_while_it_is_decoded(tmp_path, monkeypatch):
    smooth = np.linspace(0, 255, 320, dtype=np.uint8)[None].repeat(640, 0)
    path = saved(Image.fromarray(smooth), tmp_path / "huge.jpg", quality=95, exif=exif_block(6))
    wanted = decoder((8, 16), 1)(path)
    sizes = []
    prepare = JpegImagePlugin.JpegImageFile.load_prepare
    monkeypatch.setattr(image_decoding, "_LARGE", 200_000)
    monkeypatch.setattr(
        JpegImagePlugin.JpegImageFile, "load_prepare", lambda self: sizes.append(self.size) or prepare(self)
    )
    found = decoder((8, 16), 1)(path)
    assert sizes == [(40, 80)]  # an eighth, and still twice as large as is wanted
    assert (found.int() - wanted.int()).abs().max() <= 4


def test_an_image_too_large_for_memory_is_named_with_its_size(make, root, monkeypatch):
    monkeypatch.setattr(image_decoding, "_LARGE", 130)
    monkeypatch.setattr(image_decoding, "_MAX_PIXELS", 500)
    Image.new("L", (30, 20)).save(root / "birds/owl/huge.png")
    with pytest.raises(ValueError, match=r"huge\.png: 30 x 20 pixels are more than the 500 (?s:.)*broken_images skip"):
        make().setup()
    with pytest.warns(UserWarning, match="1 file cannot be read"):
        make(broken_images="skip").setup()
