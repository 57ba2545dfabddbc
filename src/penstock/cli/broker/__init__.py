"""`penstock broker`: take a broker out of service."""
