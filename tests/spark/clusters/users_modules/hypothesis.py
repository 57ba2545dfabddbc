"""Hides Hypothesis from the processes of a test, as in the environment of a user.

The schema classes of Kafka's messages register strategies with Hypothesis if they find it: two and
a half seconds of computing in each new process.
"""

raise ImportError("not for the processes of a cluster")
