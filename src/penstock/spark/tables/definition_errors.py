"""What is wrong with the definition of a pipeline: where, which key, why, and what to do.

The text stands alone: it is read in a terminal, far from the file that it is about.
"""

from penstock.spark.errors import SparkQueryError


class DefinitionError(SparkQueryError):
    """A key of a pipeline's definition is missing, wrong, unknown, or contradicts another one."""

    def __init__(self, where: str, key: str, problem: str, remedy: str) -> None:
        super().__init__(where, key, problem, remedy)
        self.where = where
        self.key = key
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        key = f", key '{self.key}'" if self.key else ""
        return f"{self.where}{key}: {self.problem} {self.remedy}"


class SchemaError(SparkQueryError):
    """A schema cannot be read, or says something that a table cannot hold."""

    def __init__(self, what: str, problem: str, remedy: str) -> None:
        super().__init__(what, problem, remedy)
        self.what = what
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.problem} {self.remedy}"
