"""The configuration: settings, where they come from, and what is wrong with them."""
