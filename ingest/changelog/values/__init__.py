"""Values of columns: their types, how they are decoded, converted and rendered. Pure."""
