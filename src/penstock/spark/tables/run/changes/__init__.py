"""The state that a commit of changes needs from earlier ones: deleted keys, versions of rows."""
