"""`python -m dspn` is the `dspn` command."""

from dspn.cli.app import main

if __name__ == "__main__":
    main()
