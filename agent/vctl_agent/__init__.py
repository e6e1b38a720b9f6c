"""What vctl does on a node: engines, files, sockets."""
