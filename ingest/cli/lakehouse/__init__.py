"""Commands that read and maintain a lakehouse."""
