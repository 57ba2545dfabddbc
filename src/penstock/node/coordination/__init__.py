"""Group and transaction coordinators over the partitions of this broker."""
