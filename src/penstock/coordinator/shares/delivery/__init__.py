"""The delivery of the records of one share-partition: which member has which record."""
