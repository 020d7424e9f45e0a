"""The client on the wire: sockets and stamps first, parsing and raw rows after."""
