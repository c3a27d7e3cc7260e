"""What users call: two thin shells over the core, for threads and for asyncio."""
