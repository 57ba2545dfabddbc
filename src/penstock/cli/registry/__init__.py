"""`penstock registry`: run a registry of sites, and administer its nodes."""
