"""`python -m lws_lightning` is `lws`."""

from lws_lightning.cli import main

if __name__ == "__main__":
    main()
