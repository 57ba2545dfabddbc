"""A service that reads orders, keeps totals and confirms each order: an example, not a product."""
