"""``python -m pnpcm``."""

from pnpcm.cli import main

if __name__ == "__main__":
    main()
