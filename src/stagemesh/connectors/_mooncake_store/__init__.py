"""The connector through a Mooncake store: both ends of an edge, and the client that they share."""
