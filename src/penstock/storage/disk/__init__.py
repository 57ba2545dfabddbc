"""Files and disks: the port, its implementations, atomic files, and free space."""
