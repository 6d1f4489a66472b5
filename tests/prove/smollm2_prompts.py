"""Sixty-four prompts of our own, of different lengths, kinds and languages."""

from __future__ import annotations

_SUBJECTS = (
    "the tides of the sea",
    "a bicycle's gears",
    "baking sourdough bread",
    "the water cycle",
    "a public library",
    "prime numbers",
    "learning the violin",
    "how bees find flowers",
    "the moon's phases",
    "writing a cover letter",
    "a night train",
    "growing tomatoes on a balcony",
    "the invention of printing",
    "static shapes in compilers",
    "saving money",
    "a lighthouse keeper",
)
_FRAMES = (
    "What should a child know about {}?",
    "Write three short sentences about {}. Use plain words and no lists.",
    "I have ten minutes to give a talk on {}. Which one question should I put to the audience at "
    "the start, and why that one rather than another? Answer in at most two sentences.",
    "Complete this: when I think of {},",
)

PROMPTS = [frame.format(subject) for subject in _SUBJECTS for frame in _FRAMES]
assert len(set(PROMPTS)) == 64
