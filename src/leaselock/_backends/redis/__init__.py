"""Redis and Valkey: locks in the format of Redisson, handed from holder to waiter by the server."""
