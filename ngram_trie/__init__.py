"""N-gram trie speculative decoding: draft trees, tries and drafters, verification, decoding, records, metrics, tables."""
