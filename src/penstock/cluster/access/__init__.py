"""Carries out changes of access rules and of users."""
