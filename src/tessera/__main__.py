"""``python -m tessera``: how does Python find the command where no script was installed?"""

from tessera.cli.main import app

app(prog_name="python -m tessera")
