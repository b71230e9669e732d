"""``python -m tessera``: how does Python find the command where no script was installed?"""

from tessera.cli.main import app

# Processes that simulate import this again, under another name.
if __name__ == "__main__":
    app(prog_name="python -m tessera")
