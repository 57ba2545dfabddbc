"""Many tables by one definition: the order of topics, and the workers."""
