"""A pipeline that runs: from a definition to a Spark query whose batches are committed once each.

What a batch has to become is decided in the packages around it; here it is carried out.
"""
