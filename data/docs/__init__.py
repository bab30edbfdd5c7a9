"""Questions about the documentation of installed packages: real text, real retrieval, no download (docs/data.md).

corpus.py reads the docstrings, tasks.py makes the four data sets of them; questions.yaml holds what is asked and
retrieved.json which passages were found for it.
"""
