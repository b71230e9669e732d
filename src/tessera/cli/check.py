"""``tessera check``: would this configuration start, and what would it do?"""

from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.options import Format, FormatOption, ModelDirOption, err, out, print_json, said_plainly
from tessera.config.check import advice, fit
from tessera.config.load import LoadedConfig, load_file
from tessera.core.errors import ConfigError, Problem
from tessera.live.scrape_settings import engine_table


def check(
    config: Annotated[Path, typer.Argument(help="EndpointPickerConfig in YAML or JSON.", show_default=False)],
    model_dir: ModelDirOption = None,
    show: Annotated[bool, typer.Option("--show", help="Print the effective configuration.")] = False,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Read a configuration and report every problem with its path.

    Exit code 0 where it would start, 2 where it would not. A plugin that llm-d has
    and Tessera has not yet is a warning here; serve refuses it unless told to
    leave it out. With --model-dir it also says where the estimator cannot fit the
    served model.

        tessera check my.yaml --show
    """
    if format_ is Format.JSON:
        _check_as_json(config, model_dir)
        return
    with said_plainly():
        loaded = _load(config)
        warnings = _warnings(loaded, model_dir)
    for warning in (*warnings, *loaded.missing_plugins):
        err.print("[yellow]warning[/yellow]: ", end="")
        err.print(str(warning), markup=False, soft_wrap=True)
    for addition in loaded.additions:
        err.print(f"added: {addition}", style="dim", markup=False, soft_wrap=True)
    if show:
        out.print(loaded.effective_yaml(), markup=False, soft_wrap=True)
    verdict = "starts with --ignore-missing-plugins only" if loaded.missing_plugins else "would start"
    out.print(f"{config}: {verdict}", markup=False)


def _load(config: Path) -> LoadedConfig:
    """The configuration, with what only ``live`` would find wrong with it."""
    loaded = load_file(config)
    engine_table(loaded.data_layer.engines.engine_configs)
    return loaded


def _warnings(loaded: LoadedConfig, model_dir: Path | None) -> tuple[Problem, ...]:
    return (*loaded.warnings, *advice(loaded), *(fit(loaded, model_dir) if model_dir else ()))


def _check_as_json(config: Path, model_dir: Path | None) -> None:
    try:
        loaded = _load(config)
        warnings = _warnings(loaded, model_dir)
    except ConfigError as error:
        print_json({"ok": False, "problems": [{"path": each.path, "message": each.message} for each in error.problems]})
        raise typer.Exit(2) from None
    print_json(
        {
            "ok": True,
            "warnings": [{"path": each.path, "message": each.message} for each in warnings],
            "missing_plugins": [
                {"path": each.path, "type": each.type, "message": each.message} for each in loaded.missing_plugins
            ],
            "additions": list(loaded.additions),
            "effective": loaded.effective,
        }
    )
