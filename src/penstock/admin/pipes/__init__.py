"""Pipes over HTTP: operations, inputs and answers."""
