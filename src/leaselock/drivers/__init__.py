"""How a step is run: drivers know effects, and no backend."""
