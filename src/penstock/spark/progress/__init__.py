"""How far streaming queries are: shown to a person, and published as offsets of consumer groups.

What is read, shown and published is decided without Spark, a terminal or a broker (`reading`,
`line`, `board`, `publications`); `display`, `publisher`, `committer` and `listener` do it.
"""
