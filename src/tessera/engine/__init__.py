"""One vLLM-like server as a model that is told the time: what would it do, and when?"""
