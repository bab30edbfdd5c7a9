"""The drafters inside engines that serve models; each module is one engine's contract (docs/engines.md)."""
