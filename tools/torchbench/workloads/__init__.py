"""The workloads of torchbench. Each is a class of a module here:

    WARM        number of warm-up steps, which the median leaves out
    __init__()  builds it; seeds are set before
    step(n)     makes one step and returns a tensor of its results
    HAS_TREES   True: trees of graphs, which compare deleters, so the time inside the allocator is not taken
    HAS_GRAPHS  False: it captures none, so that idle memory of its pools is not kept for graphs
    close()     ends what it started

and, if there is a search for the largest size that trains under a limit:

    CAP_BYTES, CAP_UNIT, CAP_FIRST, CAP_COARSE, CAP_FINE
    fit(size, n, steps)   trains step n with a size
    clear()               drops what a failed step left

This file imports none of these modules, so that a script that only plans needs no torch.
"""
import collections
import importlib

Place = collections.namedtuple("Place", "module noun steps repeats title")

MANY = 1000

# Workloads that may leave the GPU unusable come last.
PLACES = {
    "llm": Place("llm", "Training", 40, MANY, "Llama of 370 M trained, AdamW, bf16, 4 x 256 to 4096 tokens"),
    "lora": Place("lora", "Tuning", 40, MANY,
                  "LoRA on a Llama of 850 M, gradient checkpointing, bf16, 2 x 512 to 8192 tokens"),
    "generate": Place("generate", "Generation", 50, MANY,
                      "generation by a Llama of 650 M: three batches with growing key-value caches"),
    "detect": Place("detect", "Detection", 40, MANY,
                    "Faster R-CNN ResNet-50 FPN trained, 4 images of mixed sizes"),
    "gnn": Place("gnn", "GraphNet", 60, MANY, "GraphSAGE trained on subgraphs of 50 to 400 thousand nodes"),
    "serve": Place("serve", "Serving", 50, MANY,
                   "BERT-base answers 8 requests a wave on four streams, record_stream"),
    "captured": Place("captured", "Captured", 40, MANY,
                      "a captured training step replayed between eager work"),
    "pools": Place("pools", "Pooled", 40, MANY,
                   "a transformer trained in a MemPool; a second MemPool comes and goes"),
    "received": Place("received", "Received", 40, MANY,
                      "training on images that another process makes on the GPU and sends"),
    "ddp": Place("ranked", "Replicated", 40, MANY, "a transformer trained with DDP, a rank a GPU"),
    "fsdp": Place("ranked", "Sharded", 40, MANY, "the same with FSDP2"),
    "compile": Place("compiled", "Compiled", 20, 2, "torch.compile of a training step"),
    "compile_plain": Place("compiled", "CompiledPlainGraphs", 20, 1,
                           'the same, mode="reduce-overhead", plain graphs'),
    "compile_trees": Place("compiled", "CompiledGraphs", 20, 1,
                           'the same, mode="reduce-overhead", trees of graphs'),
}
NAMES = tuple(PLACES)
CAPPED = ("llm", "lora", "detect")
STREAMED = ("serve",)  # on several streams: the mode of sharing between streams matters


def kind(name):
    """The class of a workload."""
    place = PLACES[name]
    return getattr(importlib.import_module("workloads." + place.module), place.noun)
