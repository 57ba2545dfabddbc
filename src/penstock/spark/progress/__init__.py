"""Progress of streaming queries: shown in a terminal, and published as offsets of consumer groups.

`reading`, `line`, `board` and `publications` decide without Spark, a terminal or a broker;
`display`, `publisher`, `committer` and `listener` do the IO.
"""
