"""The settings of a broker: their tree, their layers, and their names."""
