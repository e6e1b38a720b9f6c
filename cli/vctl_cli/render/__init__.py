"""How views look: tables, lines, live, JSON and YAML."""
