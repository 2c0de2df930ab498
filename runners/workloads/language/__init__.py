"""Models of text from transformers, built from their configurations: nothing is downloaded.

`models.py` is the table of encoders; `reformer.py` and `gpt2.py` have those that need more than an entry, generation
among them. `text.py` is what all share, `masks.py` the padded input, `attention.py` the choice of an implementation.
"""
