"""Tool calls: from what a model wrote to a validated `ToolCall`, or the reason why it is none."""
