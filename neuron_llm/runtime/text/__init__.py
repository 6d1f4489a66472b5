"""Between text and tokens: tokenizer, chat messages, stop strings."""
