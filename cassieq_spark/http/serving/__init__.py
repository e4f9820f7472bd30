"""The parts that the servers of gateway and console share: limits of connections and bodies."""
