"""The same outage on Penstock, NATS, Mosquitto and MirrorMaker 2."""
