"""From logits to the next token, as a request asks for it."""
