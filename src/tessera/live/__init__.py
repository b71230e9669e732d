"""What waits and never decides: sockets, clocks, files, Envoy."""
