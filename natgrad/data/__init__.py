"""Training examples on disk: frames stored once, one byte per value, in random blocks (C.2)."""

from natgrad.data.block_file import BlockError
from natgrad.data.blocks import Block, Minibatch, PieceOfSegment, SoftLabels
from natgrad.data.builder import build
from natgrad.data.examples import BlockEntry, Examples, ExamplesError, block_path, open_examples
from natgrad.data.segment import Segment, segments_of_vectors

__all__ = [
    "Block",
    "BlockEntry",
    "BlockError",
    "Examples",
    "ExamplesError",
    "Minibatch",
    "PieceOfSegment",
    "Segment",
    "SoftLabels",
    "block_path",
    "build",
    "open_examples",
    "segments_of_vectors",
]
