"""Which options say where and how a run is computed, and not what comes out of it."""

__all__ = ["NEUTRAL_DATA_OPTIONS", "NEUTRAL_METHOD_OPTIONS"]

NEUTRAL_DATA_OPTIONS = frozenset(
    {
        "root",
        "download",
        "num_workers",
        "cache",
        "cache_dir",
        "evaluation_batch_size",
        "images_on_device",
        "in_memory",
        "memory_limit_gb",
    }
)
"""Of a DataModule: neither batches nor scores depend on them."""

NEUTRAL_METHOD_OPTIONS = frozenset({"max_images_per_pass"})
"""Of a method: results depend on them by rounding only."""
