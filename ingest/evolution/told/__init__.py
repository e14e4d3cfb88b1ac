"""What tables take of the versions that messages of the source tell."""
