"""`python -m kraft.deploy.cli`: the kraft command."""

from kraft.deploy.cli import main

if __name__ == "__main__":
    main()
