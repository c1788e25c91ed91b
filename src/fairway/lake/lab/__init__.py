"""The lab: a grid of protocols, options, links, loads and seeds, each cell of it one simulated run.

grid.py     a TOML file to cells; whatever is wrong with it is said before anything starts
cells.py    one cell to one row of the table `runs`; a function of the cell, wherever it is computed
folder.py   what a sweep leaves on disk: its cells, and a file of rows for each finished chunk of them
sweep.py    the chunks that are not there yet, spread over Spark
"""
