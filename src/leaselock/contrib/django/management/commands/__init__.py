"""Commands of manage.py, each a module of its name."""
