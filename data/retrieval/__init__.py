"""From a question to the passages it is answered from: encode a corpus, index it, search, rerank (docs/data.md).

corpus.py reads passages, encoders.py and rerankers.py hold the models, index.py vectors on disk and FAISS, questions.py
and recall.py what is asked and whether the answer was found.
"""
