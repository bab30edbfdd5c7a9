"""Everything under `results/` as one page that stands alone: sources, claims and checks, sections, rendering."""
