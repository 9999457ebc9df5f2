"""Tool calls: from what a model wrote to a validated `ToolCall`, or a `Rejection`."""
