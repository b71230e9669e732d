"""From a YAML file to a Router, with every problem named."""
