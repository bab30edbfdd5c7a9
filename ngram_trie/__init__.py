"""N-gram trie speculative decoding: trees, tries and drafters, decoding, records, metrics, tables, figures."""
