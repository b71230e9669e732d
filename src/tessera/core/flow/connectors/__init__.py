"""How do two engines hand embeddings or KV blocks over? One protocol a file: bodies in, bodies out."""
