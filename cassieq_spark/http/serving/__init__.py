"""What the servers of the gateway and of the console share: limits of connections and bodies."""
