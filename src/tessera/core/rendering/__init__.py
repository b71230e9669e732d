"""Which token ids will the engine make of a request? Its chat template, its tokenizer, its placeholders."""
