"""Who may do what: every API with every grant, recorded on Apache Kafka and run on Penstock."""
