"""Prompts of real work in classes, for measuring what n-gram speculation gains: ``axlm benchmark --suite``.

What is gained depends on how much of the answer stands in the prompt already, hence the classes: from an edited copy of
a file to a story out of nowhere.
"""

from .prompts import CLASSES, Prompt, load_prompts

__all__ = ["CLASSES", "Prompt", "load_prompts"]
