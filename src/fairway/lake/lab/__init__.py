"""The lab: a grid of protocols, options, links, loads and seeds, each cell of it one simulated run.

grid.py     a TOML file to cells; whatever is wrong with it is said before anything starts
cells.py    one cell to one row of the table `runs`; a function of the cell, wherever it is computed
sweep.py    chunks of cells spread over Spark, and the file of rows that each leaves on disk
"""
