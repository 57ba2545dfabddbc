"""Access rules (ACLs): their values, the authorizer that applies them, and the rules file."""
