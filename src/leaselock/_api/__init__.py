"""The public interface: two thin layers over the core, for threads and for asyncio."""
