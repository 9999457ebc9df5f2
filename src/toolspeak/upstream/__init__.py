"""Everything between the engine and the models: endpoints, HTTP, local models, records."""
