"""Questions about the documentation of six packages: real text, real retrieval, no download (docs/data.md).

corpus.py has the docstrings (docstrings.json.gz, LICENCES.txt), tasks.py makes the four data sets of them;
questions.yaml holds what is asked and retrieved.json which passages were found for it.
"""
