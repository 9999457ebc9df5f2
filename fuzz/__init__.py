"""Coverage-guided fuzzing: `make fuzz`. See CONTRIBUTING.md."""
