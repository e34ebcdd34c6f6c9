"""Caches of transformers, made of plain tensors."""

from transformers import DynamicCache, EncoderDecoderCache


def with_encoder(cache):
    """Keys and values of the decoder's own tokens, and none yet of what the encoder has made."""
    return EncoderDecoderCache(DynamicCache(ddp_cache_data=cache), DynamicCache())
