"""Fakes and fixtures, public: what Penstock is tested with, anyone may test with."""
