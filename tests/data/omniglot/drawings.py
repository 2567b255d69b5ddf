"""Alphabets of which the tests write drawings, and how to read them."""

from lws_lightning.data import Omniglot

OJIBWE = "Ojibwe_(Canadian_Aboriginal_Syllabics)"  # 14 characters
BLACKFOOT = "Blackfoot_(Canadian_Aboriginal_Syllabics)"  # 14
ANGELIC = "Angelic"  # 20, in the evaluation part
ALPHABETS = [BLACKFOOT, OJIBWE, ANGELIC]
URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_{}.zip"


def one(root, **options):
    return Omniglot(str(root), **{"tasks": [OJIBWE]} | options)


def character_and_drawer(images):
    """Reads what `write_omniglot` wrote into the first two rows."""
    return images[:, 0, 0].argmin(1), images[:, 0, 1].argmin(1)
