"""Which endpoint would serve this request better? One column of scores a file."""
