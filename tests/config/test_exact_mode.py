"""What makes token ids is read from the model's folder, and what is missing is told."""

import json

import pytest

from tessera.config.load import load_data
from tessera.core.errors import ConfigError
from tessera.core.parts import Modality

from ..models import MARKERS, TEMPLATE, write_model

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

    def test_files_by_name(self, loaded, folder):
        """The engine's processor cannot use several, its tokenizer can."""
        (folder / "chat_templates").mkdir()
        (folder / "chat_templates" / "tool_use.jinja").write_text("tools")
        (folder / "chat_template.jinja").write_text("shared")
        self.tokenizer_config(folder, "own")
        assert self.texts(loaded) == [None, "tools"]
        (folder / "preprocessor_config.json").unlink()
        assert self.texts(loaded) == ["shared", "tools"]
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": "legacy"}))
        (folder / "preprocessor_config.json").write_text("{}")
        assert self.texts(loaded) == ["legacy", "tools"]
        (folder / "chat_template.jinja").unlink()
        assert self.texts(loaded) == ["legacy", "tools"]
        (folder / "chat_template.json").unlink()
        (folder / "chat_templates" / "tool_use.jinja").rename(folder / "chat_templates" / "default.jinja")
        assert self.texts(loaded) == ["tools", "tools"]

    def test_names_of_special_tokens(self, loaded, folder):
        (folder / "chat_template.jinja").write_text("{{ eos_token }}|{{ image_token }}|{{ sound }}|{{ bos_token }}")
        said = {"image_token": "<i>", "add_bos_token": True, "extra_special_tokens": {"sound": {"content": "<s>"}}}
        self.tokenizer_config(folder, None, **said)
        assert self.texts(loaded) == ["<|im_end|>|<i>|<s>|"] * 2
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"eos_token": "</s>", "bos_token": {"content": "<b>"}})
        )
        assert self.texts(loaded) == ["</s>|<i>|<s>|<b>"] * 2
        self.tokenizer_config(folder, None, added_tokens_decoder={}, tokenizer_class="PreTrainedTokenizerFast")
        assert self.texts(loaded) == ["<|im_end|>|<i>|<s>|"] * 2

    def test_a_name_of_which_nothing_is_said(self, loaded, folder):
        (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}{{ sep_token }}{{ cls_token }}")
        (told,) = [
            each for each in loaded(chatTemplateKwargs={"cls_token": "c"}).warnings if "asks for" in each.message
        ]
        assert told.path.endswith("tokenizer.path")
        assert "asks for sep_token, of which" in told.message

    def test_none(self, loaded, folder):
        (folder / "chat_template.jinja").unlink()
        assert self.texts(loaded) == [None, None]

    @staticmethod
    def tokenizer_config(folder, chat_template, **fields):
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": chat_template} | fields))


class TestWhatTheEngineDoesOtherwise:
    """Then there are no token ids, and a warning says why."""

    @pytest.fixture
    def why(self, loaded):
        def told():
            config = loaded()
            assert (config.router.renderer is None, config.profile.renders_prompts) == (True, False)
            (warning,) = [each for each in config.warnings if each.path.endswith("tokenizer.path")]
            return warning.message

        return told

    @pytest.mark.parametrize("name", ["tekken.json", "tokenizer.model.v3"])
    def test_mistrals_own_tokenizer(self, why, folder, name):
        (folder / name).write_text("")
        assert "Mistral's own tokenizer" in why()

    @pytest.mark.parametrize("architecture", ["GptOssForCausalLM", "DeepseekV32ForCausalLM"])
    def test_prompts_that_code_writes(self, why, folder, architecture):
        (folder / "config.json").write_text(
            json.dumps({"architectures": ["Qwen3VLForConditionalGeneration", architecture]})
        )
        assert f"writes prompts of {architecture}" in why()

    def test_special_tokens_that_are_text(self, why, folder):
        (folder / "tokenizer_config.json").write_text('{"split_special_tokens": true}')
        assert "split_special_tokens" in why()

    @pytest.mark.parametrize(
        ("change", "other"),
        [
            ({"256": {"content": "<|endoftext|>", "lstrip": True, "normalized": False}}, "<|endoftext|>"),
            ({"300": {"content": "<new>", "normalized": False}}, "<new>"),
            ({"257": None}, "<|im_start|>"),
            ({"x": {"content": "<|endoftext|>"}}, "x"),
        ],
    )
    def test_added_tokens_that_are_others(self, why, folder, change, other):
        self.declare(folder, change, "Qwen2Tokenizer")
        assert f"on the added token {other!r}" in why()

    @pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", None])
    def test_a_tokenizer_that_is_its_file_has_tokens_that_are_not_declared(self, loaded, folder, name):
        self.declare(folder, {"257": None}, name)
        assert loaded().router.renderer is not None

    def test_the_same_tokens(self, loaded, folder):
        self.declare(folder, {}, "Qwen2Tokenizer")
        assert loaded().router.renderer is not None

    @staticmethod
    def declare(folder, change, tokenizer_class):
        declared = {str(256 + at): {"content": text, "normalized": False} for at, text in enumerate(MARKERS)} | change
        config = {"added_tokens_decoder": {key: value for key, value in declared.items() if value}}
        if tokenizer_class:
            config["tokenizer_class"] = tokenizer_class
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


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
