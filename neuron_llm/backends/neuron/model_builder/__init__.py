"""The `model_builder` binding: all graphs in one model, with weights and KV once."""
