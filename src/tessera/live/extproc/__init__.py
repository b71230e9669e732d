"""How does a gateway ask us? The ext_proc protocol, without and with sockets."""
