"""How do encode, prefill and decode run apart? A state table that eats events and emits commands."""
