"""What makes token ids is read from the model's folder, and what is missing is told."""

import json

import pytest

from tessera.config.load import load_data
from tessera.core.errors import ConfigError
from tessera.core.parts import Modality

from ..models import TEMPLATE, write_model

PRECISE = "precise-prefix-cache-producer"


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path)
    return tmp_path


@pytest.fixture
def loaded(config, folder):
    def load(*plugins, path="", model=True, **tokenizer):
        parameters = {"tokenizer": {"path": str(folder / path)} | tokenizer}
        if model:
            parameters["estimate"] = {"model": {"path": str(folder)}}
        return load_data(config({"type": "token-producer", "parameters": parameters}, *(plugins or (PRECISE,))))

    return load


def text_of(template):
    message = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    return template.render([message], kwargs={}, wall_at=0.0)


def test_a_folder_gives_everything(loaded):
    config = loaded()
    renderer = config.router.renderer
    assert text_of(renderer.template) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(renderer.tool_template) == text_of(renderer.template)
    assert renderer.placeholders[Modality.IMAGE].token == "<|image_pad|>"
    assert renderer.tokenizer.id_of("<|im_end|>") == 258
    assert (config.profile.renders_prompts, config.profile.names_as_engine) == (True, True)
    assert [each for each in config.warnings if "tokenizer" in each.path] == []


def test_nobody_asks_for_ids_so_text_is_counted(loaded):
    config = loaded("approx-prefix-cache-producer")
    assert config.router.renderer is None
    assert not config.profile.renders_prompts
    assert config.profile.tokenizer.count("Hi") == 2


def test_a_tokenizer_alone_has_no_template(loaded):
    config = loaded(path="tokenizer.json")
    assert config.router.renderer.template is None
    (told,) = [each for each in config.warnings if each.path.endswith("tokenizer.path")]
    assert "name the model's folder" in told.message


def test_without_the_models_rule_no_media_are_laid_out(loaded):
    assert loaded(model=False).router.renderer.placeholders == {}


def test_what_the_engine_was_started_with(loaded, folder):
    (folder / "mine.jinja").write_text("mine {{ a }}")
    config = loaded(chatTemplate=str(folder / "mine.jinja"), chatTemplateKwargs={"a": 1}, contentFormat="string")
    renderer = config.router.renderer
    assert (text_of(renderer.template), text_of(renderer.tool_template)) == ("mine ", "mine ")
    assert (renderer.template_kwargs, renderer.wraps_parts) == ({"a": 1}, False)
    assert loaded(path="tokenizer.json", chatTemplate=str(folder / "mine.jinja")).router.renderer.template


class TestTemplates:
    """Which of a folder's templates the engine takes."""

    def texts(self, loaded):
        renderer = loaded().router.renderer
        return [text_of(each) if each else None for each in (renderer.template, renderer.tool_template)]

    def test_the_processors_goes_first_without_tools(self, loaded, folder):
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": "processor"}))
        (folder / "chat_template.jinja").write_text("shared")
        assert self.texts(loaded) == ["processor", "shared"]
        (folder / "processor_config.json").write_text(json.dumps({"chat_template": "config"}))
        assert self.texts(loaded) == ["config", "shared"]

    def test_a_model_without_a_processor(self, loaded, folder):
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": "processor"}))
        (folder / "preprocessor_config.json").unlink()
        assert self.texts(loaded) == [text_of(loaded().router.renderer.tool_template)] * 2

    def test_the_tokenizers_own(self, loaded, folder):
        (folder / "chat_template.jinja").unlink()
        self.tokenizer_config(folder, "own {{ eos_token }}{{ pad_token }}{{ bos_token }}")
        assert self.texts(loaded) == ["own <|im_end|><|endoftext|>"] * 2

    def test_several_by_name(self, loaded, folder):
        (folder / "chat_template.jinja").unlink()
        named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
        self.tokenizer_config(folder, named)
        assert self.texts(loaded) == ["plain", "tools"]
        self.tokenizer_config(folder, named[:1])
        assert self.texts(loaded) == ["plain", "plain"]

    def test_none(self, loaded, folder):
        (folder / "chat_template.jinja").unlink()
        assert self.texts(loaded) == [None, None]

    @staticmethod
    def tokenizer_config(folder, chat_template):
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": chat_template}))


@pytest.mark.parametrize(
    ("name", "content", "path", "said"),
    [
        ("chat_template.jinja", b"{% for %}", "tokenizer", "not Jinja"),
        ("chat_template.jinja", b"\xff", "tokenizer", "not UTF-8"),
        ("tokenizer_config.json", b"{", "tokenizer", "not JSON"),
        ("tokenizer.json", b"{}", "tokenizer.path", "no tokenizer.json"),
    ],
)
def test_what_is_wrong_is_a_problem_with_its_path(loaded, folder, name, content, path, said):
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        loaded()
    (problem,) = caught.value.problems
    assert problem.path == f"plugins[0].parameters.{path}"
    assert said in problem.message


def test_a_missing_template_file(loaded, folder):
    with pytest.raises(ConfigError, match="cannot be read"):
        loaded(chatTemplate=str(folder / "none.jinja"))


def test_the_template_is_the_folders(folder):
    assert (folder / "chat_template.jinja").read_text() == TEMPLATE
