"""How well a model calls tools: questions with known answers, asked through the gateway."""
