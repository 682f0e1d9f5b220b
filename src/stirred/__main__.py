"""``python -m stirred`` is the ``stirred`` command."""

from stirred.cli.main import main

if __name__ == "__main__":
    main()
