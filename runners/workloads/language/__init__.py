"""Models of text from transformers, built from their configurations: nothing is downloaded.

`models.py` is the table of encoders, `gpt2.py` has the decoder and its generation, `text.py` what they share,
`masks.py` the padded input, `attention.py` the choice of an attention implementation.
"""
